"""The grader's end of `child`: start the server, send jobs, wait with limits, kill what overstays."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from memstrat.errors import GradingError

PACKAGE = Path(__file__).parent.parent
CHILD = Path(__file__).parent / "child.py"
MIB = 2**20
KEPT_ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


class Limits(NamedTuple):
    """What one exercise of one submission may use."""

    call_s: float = 2.0
    load_s: float = 10.0  # running the cell itself
    cpu_s: int = 30
    memory_bytes: int = 512 * MIB  # on top of what an idle child has
    answer_bytes: int = 8 * MIB
    file_bytes: int = 16 * MIB


class JobResult(NamedTuple):
    """What came back from one child, as far as it got."""

    answers: dict[int, dict[str, Any]]
    findings: list[str]
    loaded: bool | None  # None: the cell did not finish
    problem: str
    stopped: str | None  # timed_out, process_ended or too_much_output; None if it finished
    exit_code: int | None
    guards: dict[str, bool]


class ChildServer:
    """One server process; not shared between threads. Use it in a `with` block."""

    def __init__(self, torch: bool = False, denied: tuple[str, ...] = (), limits: Limits | None = None):
        self.torch = torch
        self.limits = limits or (Limits(call_s=20, memory_bytes=2048 * MIB) if torch else Limits())
        needed = [str(PACKAGE), os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)]
        apart = [path for path in denied if not any(f"{one}/".startswith(f"{path.rstrip('/')}/") for one in needed)]
        self._denied = [*apart, *(str(PACKAGE / name) for name in (
            "evidence.py", "evidence_bytes.py", "decision.py", "checks", "grading", "__pycache__"))]
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="grade-")
        self.guards: dict[str, bool] = {}

    def __enter__(self) -> ChildServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and remove its folder."""
        self._stop()
        self._folder.cleanup()

    def run(self, sources: list[tuple[str, str]], function: str, cases: list[str], first: int = 0,
            adapter: bool = False) -> JobResult:
        """Run cells, then call the function once a case.

        Args:
            sources: (name, source) of the cells, the exercise's own last.
            function: its name in the cell.
            cases: JSON texts of `[args, kwargs]`.
            first: number of the first case.
            adapter: observe a pair of saved-tensor hooks instead of calling with the arguments.
        """
        if self._process is None or self._process.poll() is not None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        with tempfile.TemporaryDirectory(dir=self._folder.name) as workdir:
            job = {"sources": sources, "function": function, "cases": cases, "first": first, "adapter": adapter,
                   "workdir": workdir, "package": str(PACKAGE), "memory_bytes": self.limits.memory_bytes,
                   "cpu_s": self.limits.cpu_s, "file_bytes": self.limits.file_bytes}
            self._send(job)
            result = self._collect(len(cases))
        return result._replace(problem=self._scrub(result.problem, workdir), answers={
            number: {**answer, "error": self._scrub(str(answer["error"]), workdir)} if "error" in answer else answer
            for number, answer in result.answers.items()})

    def _scrub(self, text: str, workdir: str) -> str:
        """Without addresses and temporary folders, so that equal runs give equal reports."""
        return _ADDRESS.sub("0x...", text.replace(workdir, "."))

    def _start(self) -> None:
        self._stop()
        answers_out, answers_in = os.pipe()
        environment = {key: os.environ[key] for key in KEPT_ENVIRONMENT if key in os.environ}
        environment |= {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(CHILD), str(answers_in)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(answers_in,), env=environment,
            cwd=self._folder.name, start_new_session=True)
        os.close(answers_in)
        assert self._process.stdout is not None
        self._pipes = {"control": self._process.stdout.fileno(), "answers": answers_out}
        self._rest = {"control": b"", "answers": b""}
        for descriptor in self._pipes.values():
            os.set_blocking(descriptor, False)
        paths = [str(PACKAGE.parent), *dict.fromkeys(sysconfig.get_paths()[key] for key in ("purelib", "platlib"))]
        self._send({"paths": paths, "torch": self.torch, "denied": self._denied})
        deadline = time.monotonic() + 120
        ready: dict[str, Any] = {}
        while not ready:
            ready = next((message for _, message in self._receive(deadline - time.monotonic())), {})
            if not ready and (time.monotonic() > deadline or self._process.poll() is not None):
                self._stop()
                raise GradingError("grading: must be able to start a child process, got none"
                                   f"{' with torch' if self.torch else ''}. Check that torch can be imported.")
        self.guards["no_network"] = bool(ready.get("no_network"))

    def _stop(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        os.close(self._pipes["answers"])
        self._process = None

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        data = json.dumps(message).encode()
        self._process.stdin.write(struct.pack("I", len(data)) + data)
        self._process.stdin.flush()

    def _receive(self, wait_s: float) -> list[tuple[str, dict[str, Any]]]:
        """Messages of both pipes that arrive within the time; a line that is no JSON object is dropped."""
        with selectors.DefaultSelector() as selector:
            for pipe, descriptor in self._pipes.items():
                selector.register(descriptor, selectors.EVENT_READ, pipe)
            ready = selector.select(max(0.0, wait_s))
        messages = []
        for key, _ in sorted(ready, key=lambda item: item[0].data):  # answers before control
            with contextlib.suppress(BlockingIOError):
                while part := os.read(key.fd, 1 << 16):
                    self._rest[key.data] += part
                    self._num_read += len(part) if key.data == "answers" else 0
                    if self._num_read > self.limits.answer_bytes:
                        break
            *lines, self._rest[key.data] = self._rest[key.data].split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError, RecursionError):
                    message = json.loads(line)
                    if isinstance(message, dict):
                        messages.append((key.data, message))
        return messages

    _num_read = 0

    def _collect(self, num_cases: int) -> JobResult:
        assert self._process is not None
        answers: dict[int, dict[str, Any]] = {}
        findings: list[str] = []
        loaded: bool | None = None
        problem, stopped, exit_code, pid = "", None, None, None
        guards = dict(self.guards)
        self._num_read, self._rest["answers"] = 0, b""
        deadline = time.monotonic() + self.limits.load_s
        drained = False
        while not drained:  # once more after the end: what the child wrote last may still lie in the pipe
            drained = exit_code is not None
            for pipe, message in self._receive(0 if drained else min(0.5, deadline - time.monotonic())):
                if pipe == "control":
                    pid = message.get("pid", pid)
                    exit_code = message.get("end", exit_code)
                elif "case" in message and isinstance(message["case"], int):
                    answers.setdefault(message["case"], message)
                    deadline = time.monotonic() + self.limits.call_s
                elif "finding" in message:
                    findings.append(str(message["finding"])[:200])
                elif "loaded" in message:
                    loaded, problem = bool(message["loaded"]), str(message.get("problem", ""))
                    deadline = time.monotonic() + self.limits.call_s
                elif "guards" in message:
                    guards |= message["guards"]
            if self._num_read > self.limits.answer_bytes:
                stopped = stopped or "too_much_output"
            elif time.monotonic() > deadline and exit_code is None:
                stopped = stopped or "timed_out"
            if stopped and exit_code is None:
                self._kill(pid)
                deadline = time.monotonic() + 5
            if self._process.poll() is not None:  # the server itself is gone
                exit_code = exit_code if exit_code is not None else -1
        if stopped is None and loaded is not False and len(answers) < num_cases:
            stopped = "process_ended"
        self.guards = guards
        return JobResult(answers, sorted(set(findings)), loaded, problem, stopped, exit_code, guards)

    def _kill(self, pid: int | None) -> None:
        """Kill the child with its process group; the server, if the child's number is not known yet."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL) if pid else self._process.kill()
        if pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if self._num_read > self.limits.answer_bytes:
            self._num_read = 0
