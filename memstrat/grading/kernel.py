"""A kernel whose death is seen within a second, and which may be confined.

Confined (see `sandbox`): no network but the kernel's own local sockets, no writing outside a
temporary folder that is also its working folder, limited memory and CPU, a clean environment. It
can still read what its user can; the pytest process watches the number of its processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
from jupyter_client.manager import KernelManager
from nbval.kernel import NbvalKernelspecManager, RunningKernel

POLL_S = 0.5
MAX_PROCESSES = 64
MEMORY_MIB, CPU_S, FILE_MIB = 6144, 300, 256
SANDBOX = Path(__file__).parent / "sandbox.py"
KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT")


def _clean_environment(folder: str) -> dict[str, str]:
    """What a confined kernel sees: nothing of the grader's, and every path below its own folder."""
    return {key: os.environ[key] for key in KEPT if key in os.environ} | {
        "HOME": folder, "TMPDIR": folder, "IPYTHONDIR": f"{folder}/.ipython", "MEMSTRAT_WORK": f"{folder}/my_work",
        "MEMSTRAT_RESULTS_DIR": f"{folder}/results", "MEMSTRAT_STRICT": "1", "MEMSTRAT_CHECK_SEED": "0",
        "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}


class KernelDied(Exception):
    """The kernel's process ended, or had to be ended, while a cell ran."""


class GuardedKernel(RunningKernel):
    """nbval's kernel with a shorter patience."""

    def __init__(self, kernel_name: str, cwd: str, startup_timeout: float, guard: bool):
        self.reply_error = ""
        self._deadline: float | None = None
        self._folder = tempfile.mkdtemp(prefix="kernel-")
        manager = KernelManager(kernel_name=kernel_name, kernel_spec_manager=NbvalKernelspecManager())
        environment = _clean_environment(self._folder) if guard else dict(os.environ)
        if guard:
            cwd = self._folder
            manager.transport, manager.connection_file = "ipc", f"{self._folder}/k.json"
            manager.kernel_spec.argv = [sys.executable, "-I", str(SANDBOX), self._folder, str(MEMORY_MIB), str(CPU_S),
                                        str(FILE_MIB), *manager.kernel_spec.argv]
        self.km = manager
        manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=cwd, env=environment)
        self.kc = manager.client()
        self.kc.start_channels()
        try:
            self.kc.wait_for_ready(timeout=startup_timeout)
        except RuntimeError:
            self.stop()
            self.clean_up()
            raise

    def set_deadline(self, seconds: float | None) -> None:
        """After this long no more messages are taken: a cell may print for ever."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def get_message(self, stream: str, timeout: float | None = None) -> Any:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise Empty
        return super().get_message(stream, timeout=timeout)

    def await_reply(self, msg_id: str, timeout: float | None = None) -> None:
        """Wait for the reply to a request, looking at the kernel's process meanwhile.

        Raises:
            KernelDied: the process is gone, or has started too many others.
            queue.Empty: no reply within the time.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_S if end is None else min(POLL_S, end - time.monotonic())
            if left <= 0:
                raise Empty
            try:
                message = self.get_message("shell", timeout=left)
            except Empty:
                self._look_after_process()
                continue
            if message["parent_header"].get("msg_id") == msg_id:
                content = message["content"]
                failed = content["status"] == "error"
                self.reply_error = f"{content.get('ename')}: {content.get('evalue')}" if failed else ""
                return

    def _look_after_process(self) -> None:
        if not self.is_alive():
            raise KernelDied("The kernel died while executing the cell")
        with contextlib.suppress(psutil.Error, AttributeError):
            if len(psutil.Process(self.km.provisioner.pid).children(recursive=True)) > MAX_PROCESSES:
                self.stop()
                raise KernelDied(f"The cell started more than {MAX_PROCESSES} processes")

    def run_silently(self, source: str, timeout: float) -> None:
        """Run source and drop its output, whether it fails or not."""
        msg_id = self.kc.execute(source, silent=True, store_history=False, allow_stdin=False, stop_on_error=False)
        self.await_reply(msg_id, timeout)
        self.reply_error = ""

    def stop(self) -> None:
        """End the kernel and the processes it started."""
        started: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error, AttributeError):
            started = psutil.Process(self.km.provisioner.pid).children(recursive=True)
        super().stop()
        for process in started:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def clean_up(self) -> None:
        """Remove the kernel's folder; close what a dead kernel left open."""
        with contextlib.suppress(AttributeError):
            self.kc.stop_channels()
        if hasattr(self, "km"):
            self.km.cleanup_resources()
        shutil.rmtree(self._folder, ignore_errors=True)
