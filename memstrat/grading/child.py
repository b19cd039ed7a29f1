"""The process in which learners' functions run: JSON in, JSON out. Run as a script, never imported.

A small server, started with `python -I -S`, forks one child per exercise. The child limits itself
(see `sandbox`), runs the learner's cell statement by statement, and calls the function once a
case. Right answers are not here: the grader compares. Answers and the server's own messages go
through two pipes, so that a child cannot speak for the server.

It copies the builtins it uses, encodes with the C encoder, and keeps its own references, because
the learner's code may replace any of them. A function that does so harms its own answers only.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import json
import os
import signal
import struct
import sys
import types
from _json import encode_basestring_ascii, make_encoder
from builtins import (  # noqa: UP029
    BaseException,
    Exception,
    NotImplementedError,
    callable,
    compile,
    enumerate,
    exec,
    isinstance,
    len,
    str,
    type,
)
from typing import Any

_write, _exit, _loads = os.write, os._exit, json.loads
_encode = make_encoder(None, str, encode_basestring_ascii, None, ": ", ", ", False, False, True)
PRELOADED = ("collections", "copy", "dataclasses", "datetime", "enum", "functools", "importlib.metadata", "itertools",
             "memstrat", "pathlib", "random", "re", "statistics", "subprocess", "tempfile", "typing")
BLOCKED = ("evidence", "evidence_bytes", "decision", "checks", "grading")


def _load_beside(name: str, path: str) -> Any:
    """A module from its file, without importing the package it belongs to."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _read(descriptor: int) -> bytes:
    """One message: four bytes of length, then as many bytes. Empty at the end of the stream."""
    parts: list[bytes] = []
    wanted = 4
    while wanted:
        part = os.read(descriptor, wanted)
        if not part:
            return b""
        parts.append(part)
        wanted -= len(part)
        if len(parts) and not wanted and sum(map(len, parts)) == 4:
            wanted = struct.unpack("I", b"".join(parts))[0]
    return b"".join(parts)[4:]


def _say(descriptor: int, message: dict[str, Any]) -> None:
    data = ("".join(_encode(message, 0)) + "\n").encode()
    while data:
        data = data[_write(descriptor, data):]


def serve(answers: int) -> None:
    """Answer jobs from stdin until it ends."""
    jobs, control = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    setup = _loads(_read(jobs))
    sys.path += setup["paths"]
    here = os.path.dirname(os.path.abspath(__file__))
    sandbox = _load_beside("memstrat_sandbox", os.path.join(here, "sandbox.py"))
    wire = _load_beside("memstrat_wire", os.path.join(os.path.dirname(here), "checks", "wire.py"))
    for name in PRELOADED:  # what cells import most; a fork is cheaper than an import
        importlib.import_module(name)
    adapters = None
    if setup["torch"]:
        import torch

        torch.set_num_threads(1)
        adapters = _load_beside("memstrat_adapters", os.path.join(os.path.dirname(here), "checks", "adapters.py"))
    readable = sandbox.readable_except(setup["denied"])
    guards = {"no_network": sandbox.leave_network()}
    sandbox.hide_from_children()
    _say(control, {"ready": True, **guards})
    while True:
        job = _read(jobs)
        if not job:
            return
        pid = os.fork()
        if pid == 0:
            try:
                os.close(jobs)
                os.close(control)
                _run_job(_loads(job), answers, sandbox, wire, adapters, readable)
            finally:
                _exit(0)
        _say(control, {"pid": pid})
        status = os.waitpid(pid, 0)[1]
        _say(control, {"end": os.waitstatus_to_exitcode(status)})


def _run_job(job: dict[str, Any], answers: int, sandbox: Any, wire: Any, adapters: Any, readable: Any) -> None:
    os.setsid()
    os.chdir(job["workdir"])
    os.environ.update({"HOME": job["workdir"], "TMPDIR": job["workdir"]})
    guards = {"files": sandbox.confine_files([job["workdir"]], readable), "processes": sandbox.forbid_processes()}
    sandbox.set_limits(job["memory_bytes"], job["cpu_s"], job["file_bytes"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    _say(answers, {"guards": guards})
    _watch(answers, job["package"])
    cases = [_loads(case) for case in job["cases"]]  # before the learner's code can replace what reads them
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    _offer_package(answers)
    problem = ""
    for name, source in job["sources"]:
        problem = _run_cell(name, source, module.__dict__)
    function = module.__dict__.get(job["function"])
    _say(answers, {"loaded": callable(function), "problem": problem})
    if not callable(function):
        return
    for index, (args, kwargs) in enumerate(cases):
        adapter = adapters if job["adapter"] else None
        _say(answers, {"case": job["first"] + index, **_call(function, args, kwargs, wire, adapter)})


def _run_cell(name: str, source: str, namespace: dict[str, Any]) -> str:
    """Run a cell's statements one by one; one that fails does not take the others with it."""
    problem = ""
    try:
        tree = ast.parse(source)
    except Exception as error:
        return _describe(error)
    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            flags |= sum(getattr(__import__("__future__"), alias.name).compiler_flag for alias in node.names)
        try:
            code = compile(ast.Module([node], []), f"<{name}>", "exec", flags=flags, dont_inherit=True)
            exec(code, namespace)
        except BaseException as error:
            problem = _describe(error)
    return problem


def _call(function: Any, args: Any, kwargs: Any, wire: Any, adapter: Any) -> dict[str, Any]:
    try:
        value = adapter.observe_hooks(function, args[0]) if adapter else function(*args, **kwargs)
        return {"value": wire.to_plain(value), "args": wire.to_plain(args), "kwargs": wire.to_plain(kwargs)}
    except NotImplementedError as error:
        return {"rule": "not_finished", "error": _describe(error)}
    except BaseException as error:
        return {"rule": "raised", "error": _describe(error)}


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"[:300]
    except BaseException:
        return name


def _watch(answers: int, package: str) -> None:
    """Refuse the reference's modules and files, and tell the grader of each try. Cannot be taken off."""
    hidden = [os.path.join(package, name) for name in BLOCKED]
    compiled = os.path.join(package, "__pycache__")
    names = {f"memstrat.{name}" for name in BLOCKED}
    starts = tuple(f"{name}." for name in names)
    realpath, fspath = os.path.realpath, os.fspath
    told: set[str] = set()

    def tell(what: str) -> None:
        if what not in told and len(told) < 20:
            told.add(what)
            _say(answers, {"finding": what})

    def hook(event: str, values: Any) -> None:
        if event == "import":
            name = values[0]
            if name in names or name.startswith(starts):
                tell(f"import {name}")
                raise ImportError(f"{name} is not available while graded")
        elif event == "open" and not isinstance(values[0], int):
            path = realpath(fspath(values[0]))
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            for start in hidden:
                if path.startswith((start + ".py", start + os.sep)):
                    tell(f"open memstrat/{path[len(package) + 1:]}")
                    raise PermissionError(f"{path} is not available while graded")
            if path.startswith(compiled) and path[len(compiled) + 1:].split(".")[0] in BLOCKED:
                raise PermissionError(f"{path} is not available while graded")

    sys.addaudithook(hook)


def _offer_package(answers: int) -> None:
    """The package as a cell may use it: a check that does nothing here, and no reference."""
    try:
        import memstrat
    except ImportError:
        return

    def no_check(*args: Any, **kwargs: Any) -> bool:
        return True

    def no_work(*args: Any, **kwargs: Any) -> None:
        _say(answers, {"finding": "memstrat.load_work"})
        raise ImportError("memstrat.load_work is not available while graded")

    memstrat.check, memstrat.is_done, memstrat.load_work = no_check, no_check, no_work  # type: ignore[assignment]


if __name__ == "__main__":
    builtins.exit = builtins.quit = sys.exit
    serve(int(sys.argv[1]))
