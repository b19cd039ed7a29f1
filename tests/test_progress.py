from __future__ import annotations

import io
import sys

from memstrat.progress import ProgressBar, RunProgress, is_watched


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def make_progress(**overrides) -> RunProgress:
    return RunProgress(**{"strategy": "hybrid", "repeat": 1, "repeats": 3, "seq_len": 512, "num_runs_done": 5,
                          "num_runs": 12} | overrides)


def draw(monkeypatch, stream: io.StringIO, *steps: RunProgress, enabled: bool = True) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressBar("g0", enabled=enabled) as bar:
        for step in steps:
            bar(step)
    return stream.getvalue()


def test_text_names_strategy_repeat_length_and_step():
    progress = make_progress(step_kind="timed", num_steps_done=5, num_steps=9)
    assert progress.text == "hybrid, repeat 2/3, length 512, step 5/9 (timed)"
    assert make_progress().text == "hybrid, repeat 2/3, length 512"


def test_num_done_counts_steps_as_fractions_of_a_run():
    assert make_progress(num_steps_done=3, num_steps=4).num_done == 5.75
    assert make_progress().num_done == 5


def test_a_bar_on_a_terminal_shows_where_the_runs_stand_and_the_time_left(monkeypatch):
    shown = draw(monkeypatch, Terminal(), make_progress(step_kind="timed", num_steps_done=5, num_steps=9))
    assert "g0, run 6/12, hybrid, repeat 2/3, length 512, step 5/9 (timed)" in shown
    assert " left" in shown


def test_the_last_run_is_not_followed_by_another(monkeypatch):
    assert "run 12/12" in draw(monkeypatch, Terminal(), make_progress(num_runs_done=12))


def test_runs_of_the_journal_do_not_shorten_the_time_left(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with ProgressBar("g0") as bar:
        bar(make_progress(num_runs_done=11, reused=True))
        assert (bar._bar.n, bar._bar.initial) == (11, 11)
        bar(make_progress(num_runs_done=12))
        assert (bar._bar.n, bar._bar.initial) == (12, 11)


def test_nothing_is_drawn_where_nobody_watches(monkeypatch):
    assert draw(monkeypatch, io.StringIO(), make_progress()) == ""


def test_nothing_is_drawn_when_switched_off(monkeypatch):
    assert draw(monkeypatch, Terminal(), make_progress(), enabled=False) == ""


def test_a_notebook_kernel_is_watched(monkeypatch):
    shell = type("Shell", (), {"kernel": object()})()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "IPython", type("IPython", (), {"get_ipython": staticmethod(lambda: shell)}))
    assert is_watched()
    shell.__class__ = type("Terminal", (), {})
    assert not is_watched()
