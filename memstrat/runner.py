"""Runs, each in a fresh process, in an order that treats strategies alike, with a journal.

Not covered: how a run is measured (`measure`), what its numbers mean (`candidates`).
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from memstrat import processes
from memstrat.child import resolve
from memstrat.journal import Journal
from memstrat.measure import RunSpec, is_out_of_memory
from memstrat.progress import ProgressBar, RunProgress
from memstrat.records import Run
from memstrat.strategies import to_bytes
from memstrat.workload import Workload

MEASURE = "memstrat.measure:measure_run"
StepReport = Callable[[str, int, int], None]  # kind of step, steps done, steps in all


def interleave(strategies: Sequence[str], repeats: int) -> list[tuple[str, int]]:
    """(strategy, repeat) pairs in the order to run them: ABCD, DCBA, ABCD.

    Whatever drifts in one direction (heat, other load) then falls on all strategies alike.
    """
    blocks = (strategies if repeat % 2 == 0 else reversed(strategies) for repeat in range(repeats))
    return [(name, repeat) for repeat, block in enumerate(blocks) for name in block]


class Runner:
    """Measures runs on one device, each in a fresh process.

    Use it as a context manager: entering begins to load the fork server. The server stays for the
    next runner of this process, because loading it takes seconds.

    Args:
        device: `cpu` or `cuda`.
        num_threads: CPU threads of each run; None leaves them to torch.
        target: `module:function` that measures, given the spec and `report=`.
    """

    def __init__(self, device: str, num_threads: int | None = None, target: str = MEASURE):
        self.device = device
        self.num_threads = num_threads
        self.target = target

    def __enter__(self) -> Runner:
        processes.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def spec(self, workload: Workload, strategy: str, repeat: int) -> RunSpec:
        """What one run needs to know. A strategy of the user's own travels by value."""
        return RunSpec(workload=workload, strategy=strategy, repeat=repeat, device=self.device,
                       num_threads=self.num_threads, strategy_pickle=to_bytes(strategy))

    def run(self, spec: RunSpec, report: StepReport | None = None) -> Run:
        """Measure one run. Never raises for what the child does: its failure is the row.

        Raises:
            NotReadyError: the fork server cannot load torch or transformers.
        """
        facts = {"load_average": os.getloadavg()[0]}
        began = time.monotonic()
        outcome = processes.run("memstrat.runner:run_in_child", self.target, spec, report=report or _ignore)
        if outcome.finished:
            run = Run.model_validate(outcome.value)
        elif outcome.error_traceback is not None:
            run = _failed(spec, "failed", _one_line(outcome.error_traceback.splitlines()[-1]), outcome.error_traceback)
        else:
            run = _failed(spec, "failed", outcome.exit_reason, outcome.output or None)
        facts |= {"startup_s": outcome.startup_s, "wall_s": time.monotonic() - began}
        return run.model_copy(update={key: value for key, value in facts.items() if getattr(run, key) is None})

    def call(self, target: str, *arguments: Any) -> Any:
        """The result of `module:function` in a fresh process. See `processes.call`."""
        return processes.call(target, *arguments)


def run_in_child(target: str, spec: RunSpec, report: StepReport) -> dict[str, Any]:
    """Measure in this process; a Python error becomes the row. Runs in the child.

    Returns:
        The run as plain data.
    """
    try:
        run = resolve(target)(spec, report)
    except BaseException as error:  # also sys.exit in a model's code
        status = "oom" if is_out_of_memory(error) else "failed"
        reason = _one_line("".join(traceback.format_exception_only(error)))
        run = _failed(spec, status, reason, processes.strip_folders(traceback.format_exc()))
    return run.model_dump(mode="json")


def run_all(runner: Runner, workload: Workload, journal: Journal,
            report: Callable[[RunProgress], None] | None = None, *,
            show_progress: bool = False, title: str = "runs") -> list[Run]:
    """Every strategy `repeats` times at the workload's length, interleaved, without those in the journal.

    Each run is in the journal before the next begins. If this process is stopped, the run under way
    leaves no row and is measured again.

    Args:
        report: called before each run and after each step.
        show_progress: draw a bar as well, where somebody watches.
        title: the bar's.

    Returns:
        All runs, those of the journal included, in the interleaved order.
    """
    plan = interleave(workload.strategies, workload.repeats)
    runs = []
    with ProgressBar(title, enabled=show_progress) as bar:
        listeners = [bar, report] if report is not None else [bar]
        for index, (name, repeat) in enumerate(plan):
            run = journal.find(name, repeat, workload.seq_len)
            reused = run is not None
            where = RunProgress(strategy=name, repeat=repeat, repeats=workload.repeats, seq_len=workload.seq_len,
                                num_runs_done=index, num_runs=len(plan))
            if run is None:
                _tell(listeners, where)
                run = runner.run(runner.spec(workload, name, repeat),
                                 lambda kind, done, total, where=where: _tell(
                                     listeners, replace(where, step_kind=kind, num_steps_done=done, num_steps=total)))
                journal.add(run)
            runs.append(run)
            _tell(listeners, replace(where, num_runs_done=index + 1, reused=reused))
    return runs


def _tell(listeners: Iterable[Callable[[RunProgress], None]], progress: RunProgress) -> None:
    for listener in listeners:
        listener(progress)


def _failed(spec: RunSpec, status: str, reason: str, trace: str | None) -> Run:
    workload = spec.workload
    return Run(name=spec.strategy, repeat=spec.repeat, seq_len=workload.seq_len, optimizer=workload.optimizer.name,
               status=status, reason=reason, traceback=trace, num_threads=spec.num_threads)


def _one_line(text: str) -> str:
    return " ".join(processes.strip_folders(text).split())


def _ignore(*progress: Any) -> None:
    return None
