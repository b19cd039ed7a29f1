"""What runs outside the parent: the fork server, and the fresh child it forks for each job.

The server loads torch and transformers once and does nothing with them: a child forked from it
starts in milliseconds, with no tensor, thread or allocator state of an earlier job. Messages to the
parent are pickled `(kind, payload)` pairs: `ready` or `broken` once, then for each job `started`,
any number of `progress`, at most one of `result` and `error`, and `exit` with the exit code.

Not covered: the parent's side (`processes`) and what a job does. POSIX only.
"""

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection, wait
from typing import Any

# The last one brings what a run imports besides, so that no child imports anything large itself.
PRELOAD = ("torch", "transformers.modeling_utils", "memstrat.measure")
# Elsewhere than on Linux a fork after loading the system's maths libraries is not safe.
START_METHOD = "fork" if sys.platform == "linux" else "spawn"


def serve(handle: int, preload: Iterable[str] = PRELOAD) -> None:
    """Fork a child for each job that arrives on the connection, until the parent closes it or dies.

    Args:
        handle: file descriptor of this end of a two-way `multiprocessing.Pipe`.
        preload: modules to load first.
    """
    parent = Connection(handle)
    faulthandler.enable()  # a crash leaves its Python stack in the output
    try:
        for name in preload:
            importlib.import_module(name)
    except Exception:
        parent.send(("broken", traceback.format_exc()))
        wait([parent])  # the parent may be about to send the first job
        return
    parent.send(("ready", None))
    while True:
        try:
            _serve_job(parent, parent.recv_bytes())
        except (EOFError, OSError):
            end_group()


def _serve_job(parent: Connection, job: bytes) -> None:
    """Run one job in a fresh child and pass its messages on; they may break off anywhere."""
    context = multiprocessing.get_context(START_METHOD)
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=run_job, args=(job, theirs))
    process.start()
    theirs.close()
    while True:
        if parent in wait([ours, parent]):  # silent during a job: this is the end of the connection
            end_group()
        try:
            message = ours.recv_bytes()
        except (EOFError, OSError):  # ended, perhaps in the middle of a message
            break
        parent.send_bytes(message)
    process.join()
    parent.send(("exit", process.exitcode))
    process.close()
    ours.close()


def run_job(job: bytes, connection: Connection) -> None:
    """The child: run the target, send what came of it, and end without any cleaning up.

    A job is the pickle of (environment variables, folder, sys.path, call), and call the pickle of
    (target, arguments, whether the target takes `report=`): its arguments may need that sys.path.
    """
    connection.send(("started", (time.monotonic(), "torch" in sys.modules)))
    threading.Thread(target=_end_with_server, daemon=True).start()
    try:
        environment, folder, sys.path[:], call = pickle.loads(job)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)
        target, arguments, reports = pickle.loads(call)
        keywords = {"report": lambda *progress: connection.send(("progress", progress))} if reports else {}
        message = pickle.dumps(("result", resolve(target)(*arguments, **keywords)))
    except BaseException as error:  # also sys.exit in a user's model: the parent wants the reason
        message = pickle.dumps(("error", (_portable(error), traceback.format_exc())))
    connection.send_bytes(message)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # the result is out: an error in the teardown of a library must not spoil it


def resolve(target: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, function = target.partition(":")
    return getattr(importlib.import_module(module), function)


def end_group() -> None:
    """End the server, its child and whatever that started, at once."""
    os.killpg(0, signal.SIGKILL)


def _end_with_server() -> None:
    """End this child when the server is gone; the server itself watches the parent."""
    server = multiprocessing.parent_process()
    assert server is not None
    wait([server.sentinel])
    end_group()


def _portable(error: BaseException) -> BaseException | None:
    """The error, if the parent can rebuild it."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return None
