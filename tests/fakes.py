"""What the fresh children of tests run; they load it by name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstrat.records import Run

Report = Callable[[str, int, int], None]


# -- jobs of any kind -----------------------------------------------------------------------


def add(left: int, right: int) -> int:
    return left + right


def look_around() -> dict[str, Any]:
    return {"pid": os.getpid(), "server": os.getppid(), "folder": os.getcwd(), "environment": dict(os.environ),
            "modules": set(sys.modules), "daemon": multiprocessing.current_process().daemon}


def count_up(report: Callable[[int], None]) -> str:
    for number in range(3):
        report(number)
    return "done"


def fail(error: BaseException) -> None:
    raise error


def crash(how: str) -> None:
    print("the last words", flush=True)
    {"abort": os.abort, "exit": lambda: os._exit(3), "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
     "kill server": lambda: os.kill(os.getppid(), signal.SIGKILL)}[how]()
    time.sleep(30)


def work_long(path: str, how: str) -> None:
    """Say who works, then sleep or stay in one call of a C library."""
    Path(path).write_text(f"{os.getpid()}\n", encoding="utf-8")
    if how == "sleep":
        time.sleep(60)
    import numpy as np

    np.linalg.svd(np.random.default_rng(0).random((4000, 4000)))


def make_noise() -> str:
    print("noise")
    print("noise", file=sys.stderr)
    subprocess.run([sys.executable, "-c", "print('noise')"], check=True)
    return "heard"


# -- stand-ins for measure_run --------------------------------------------------------------


def make_run(spec: Any, **changes: Any) -> Run:
    from memstrat.records import Run

    values = {"name": spec.strategy, "repeat": spec.repeat, "seq_len": spec.workload.seq_len,
              "optimizer": spec.workload.optimizer.name, "status": "ok", "step_time_ms": 2.0}
    return Run(**values | changes)


def measure(spec: Any, report: Report) -> Run:
    report("warmup", 1, 2)
    report("timed", 2, 2)
    return make_run(spec)


def measure_and_log(spec: Any, report: Report) -> Run:
    """Leaves a line in the file that MEMSTRAT_TEST_LOG names when it begins."""
    with open(os.environ["MEMSTRAT_TEST_LOG"], "a", encoding="utf-8") as file:
        file.write(f"{spec.strategy} {spec.repeat}\n")
    time.sleep(0.02)
    return make_run(spec)


def measure_badly(spec: Any, report: Report) -> Run:
    """Fails in the way that the strategy's repeat asks for."""
    if spec.repeat == 0:
        raise ValueError("two\nlines")
    if spec.repeat == 1:
        raise MemoryError("no more of it")
    if spec.repeat == 2:
        sys.exit("the model's code left")
    if spec.repeat == 3:
        os.abort()
    os.kill(os.getpid(), signal.SIGKILL)
    return make_run(spec)
