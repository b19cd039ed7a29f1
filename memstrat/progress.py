"""Progress of long work for people: which strategy, repeat and step, and the time left.

Right in terminals and in notebooks; silent where nobody watches (a pipe, a log, a test).
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RunProgress:
    """Where a set of runs stands: whole runs, and steps of the run under way (of all kinds together)."""

    strategy: str
    repeat: int  # from 0
    repeats: int
    seq_len: int
    num_runs_done: int
    num_runs: int
    step_kind: str = ""  # build, warmup, timed, eval, probe
    num_steps_done: int = 0
    num_steps: int = 0
    reused: bool = False  # this run came from the journal: it says nothing about the time left

    @property
    def text(self) -> str:
        """One line: `hybrid, repeat 2/3, length 512, step 5/9 (timed)`."""
        text = f"{self.strategy}, repeat {self.repeat + 1}/{self.repeats}, length {self.seq_len}"
        if self.step_kind:
            text += f", step {self.num_steps_done}/{self.num_steps} ({self.step_kind})"
        return text

    @property
    def num_done(self) -> float:
        """Finished part of the runs, in whole runs and fractions of the one under way."""
        return self.num_runs_done + (self.num_steps_done / self.num_steps if self.num_steps else 0.0)


class ProgressBar:
    """A bar over runs; call it with each `RunProgress`.

    Args:
        title: what the runs are for, such as `g0`.
        enabled: False for silence even where somebody watches. `TQDM_DISABLE=1` does the same.
    """

    def __init__(self, title: str = "runs", enabled: bool = True):
        self._bar: Any = None
        if enabled and is_watched():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a notebook without ipywidgets: the text bar serves
                from tqdm.auto import tqdm
            self._bar = tqdm(desc=title, total=0, leave=False, dynamic_ncols=True, mininterval=0,
                             bar_format="{desc}{postfix} |{bar}| {elapsed}, {remaining} left")

    def __call__(self, progress: RunProgress) -> None:
        """Show where the runs stand now."""
        if self._bar is None:
            return
        bar = self._bar
        if progress.reused:
            bar.initial += progress.num_done - bar.n  # keeps it out of the rate
        bar.total, bar.n = progress.num_runs, progress.num_done
        number = min(progress.num_runs_done + 1, progress.num_runs)
        bar.set_postfix_str(f"run {number}/{progress.num_runs}, {progress.text}")

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()


def is_watched() -> bool:
    """True in a notebook kernel, or where stderr is a terminal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") or bool(getattr(sys.stderr, "isatty", lambda: False)())
