"""Fresh processes on demand: the parent's side of the fork server in `child`.

One server serves this process until it ends (or `stop`): the first job waits 4 to 6 s for torch
and transformers to load, each later one starts in well under 0.5 s. The server is a program of its
own rather than a copy of the caller, so that scripts without a main guard, notebook kernels and a
caller's own use of multiprocessing are all the same to it.

Not covered: several jobs at once. Measurements never run side by side.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from memstrat.child import PRELOAD
from memstrat.errors import MemstratError, NotReadyError, ProcessError

# Idle OpenMP threads spin, and slow everything else on the machine up to fifty-fold. The second
# keeps a look for GPUs at import from starting CUDA in the server, which no fork survives.
CHILD_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
# Settings that libraries read once, when they are loaded: a server loaded under others is of no use.
READ_AT_LOAD = ("CUDA_", "HF_", "HIP_", "KMP_", "MKL_", "OMP_", "PYTORCH_", "TOKENIZERS_", "TRANSFORMERS_")
MAX_OUTPUT_BYTES = 8192


@dataclass(frozen=True)
class Outcome:
    """What came of one job. Exactly one of: finished, `error_traceback`, or a crash with `exit_code`."""

    finished: bool = False
    value: Any = None
    error: BaseException | None = None  # the child's exception, where it survives pickling
    error_traceback: str | None = None
    exit_code: int | None = None
    output: str = ""  # what a crashed child printed last, with its Python stack
    startup_s: float | None = None  # from asking for the process to its first statement
    torch_preloaded: bool = False

    @property
    def exit_reason(self) -> str:
        """Why a crashed child ended, in one line."""
        return describe_exit(self.exit_code)


def describe_exit(exit_code: int | None) -> str:
    """An exit code in words: negative codes are signals."""
    if exit_code is None or exit_code >= 0:
        return f"exited with code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = "unknown"
    hint = "; often the system ran out of memory" if -exit_code == signal.SIGKILL else ""
    return f"killed by signal {-exit_code} ({name}){hint}"


def strip_folders(text: str) -> str:
    """A text without this machine's folders: modules by their path below `sys.path`, the home folder as `~`.

    Bytes of a folder's name that are no UTF-8 become question marks: a record could not hold them.
    """
    text = text.encode(errors="replace").decode()
    for folder in sorted({os.path.abspath(entry) for entry in sys.path} - {"/"}, key=len, reverse=True):
        text = text.replace(f"{folder}/", "")
    home = os.path.expanduser("~").rstrip("/")  # `/` in some containers, which is nobody's folder
    return text.replace(f"{home}/", "~/") if home else text


class ForkServer:
    """A process with torch and transformers loaded, which forks a child for each job.

    Args:
        preload: modules it loads once for all children.
    """

    def __init__(self, preload: Iterable[str] = PRELOAD) -> None:
        self._preload = tuple(preload)
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Any = None
        self._output: IO[bytes] | None = None
        self._settings: dict[str, str] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to load, without waiting for it. Does nothing if a server of these settings is there."""
        settings = {key: value for key, value in os.environ.items() if key.startswith(READ_AT_LOAD)}
        if self._process is not None and self._process.poll() is None and self._settings == settings:
            return
        self.stop()
        self._settings = settings
        self._connection, theirs = multiprocessing.Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        handle = theirs.fileno()
        program = (f"import sys; sys.path[:] = {sys.path!r}\n"
                   f"from memstrat.child import serve; serve({handle}, {self._preload!r})")
        self._process = subprocess.Popen(  # a session of its own: Ctrl-C is for the parent to act on
            [sys.executable, "-c", program], pass_fds=[handle], start_new_session=True, env=_child_environment(),
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output)
        theirs.close()

    def stop(self) -> None:
        """End the server and its child, if there is a server."""
        if self._process is not None:
            self._end()
            self._output.close()

    def abandon(self) -> None:
        """Let go of a server that belongs to the process this one was forked from."""
        if self._process is not None:
            self._connection.close()
            self._process.returncode, self._process = 0, None
        self._lock = threading.Lock()

    def run(self, target: str, *arguments: Any, report: Callable[..., None] | None = None) -> Outcome:
        """Run `module:function` in a fresh child. Never raises for what the child does.

        Args:
            target: where the function is; arguments and result must pickle.
            report: called here with whatever the function passes to its own `report=`.

        Raises:
            NotReadyError: the server cannot load torch or transformers.
        """
        with self._lock:
            call = pickle.dumps((target, arguments, report is not None))
            job = pickle.dumps((_child_environment(), os.getcwd(), list(sys.path), call))
            asked = time.monotonic()
            self.start()
            try:
                return self._exchange(job, asked, report)
            except BaseException:  # Ctrl-C, or an error of `report`: no child may go on without us
                self.stop()
                raise

    def _exchange(self, job: bytes, asked: float, report: Callable[..., None] | None) -> Outcome:
        outcome = Outcome()
        self._output.seek(0)
        self._output.truncate()
        for kind, payload in self._converse(job):
            if kind == "broken":
                raise NotReadyError(f"fork server: must load {', '.join(self._preload)}, got:",
                                    [strip_folders(payload.strip())], "Mend the installation and run again.")
            if kind == "started":
                outcome = replace(outcome, startup_s=payload[0] - asked, torch_preloaded=payload[1])
            elif kind == "progress" and report is not None:
                report(*payload)
            elif kind == "result":
                outcome = replace(outcome, finished=True, value=payload)
            elif kind == "error":
                outcome = replace(outcome, error=payload[0], error_traceback=strip_folders(payload[1]))
            elif kind == "exit" and not outcome.finished and outcome.error_traceback is None:
                outcome = replace(outcome, exit_code=payload, output=self._read_output())
        return outcome

    def _converse(self, job: bytes) -> Iterator[tuple[str, Any]]:
        """The server's messages about one job, `exit` last; also if the server itself is killed."""
        try:
            self._connection.send_bytes(job)
            while True:
                message = self._connection.recv()
                yield message
                if message[0] == "exit":
                    return
        except (EOFError, ConnectionError):
            exit_code = self._end()
        yield "exit", exit_code
        self._output.close()

    def _end(self) -> int:
        """Kill the server's whole group; what it printed stays readable. Returns the server's exit code."""
        process, self._process = self._process, None
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        exit_code = process.wait()
        self._connection.close()
        return exit_code

    def _read_output(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - MAX_OUTPUT_BYTES))
        return strip_folders(self._output.read().decode(errors="replace").strip())


def _child_environment() -> dict[str, str]:
    return {**os.environ, **CHILD_ENVIRONMENT}


_server = ForkServer()
atexit.register(_server.stop)
os.register_at_fork(after_in_child=_server.abandon)

start = _server.start
stop = _server.stop
run = _server.run


def call(target: str, *arguments: Any) -> Any:
    """The result of `module:function` in a fresh child.

    Raises:
        MemstratError: the one that the function raised.
        ProcessError: the function raised anything else, or the child crashed; with traceback or output.
    """
    outcome = run(target, *arguments)
    if outcome.finished:
        return outcome.value
    if isinstance(outcome.error, MemstratError):
        raise outcome.error
    reason = outcome.exit_reason if outcome.error_traceback is None else outcome.error_traceback.splitlines()[-1]
    raise ProcessError(target, reason, outcome.error_traceback or outcome.output)
