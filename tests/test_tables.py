"""Tables for a terminal: what a person reads, cell by cell, in 80 columns."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from record_factory import make_candidate, make_g0, make_g1, make_oom
from rich.console import Console

from memstrat.errors import RecordError
from memstrat.tables import candidates_table, decision_panel, gates_table, ladder_table

GOLDEN = Path(__file__).parent / "golden"


def lines_of(shown, width=80):
    """What a terminal of that width would show, one stripped line each."""
    console = Console(file=io.StringIO(), width=width)
    console.print(shown)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def cells_of(table):
    """Rows as lists of plain texts, by their first cell."""
    columns = [[str(cell) for cell in column._cells] for column in table.columns]
    return {row[0]: list(row[1:]) for row in zip(*columns, strict=True)}


def make_decision(**changes):
    scopes = {"full_training_adoption": {"scope": "full_training_adoption", "decision": "accept", "reason": "why",
                                         "next_action": "do"},
              "activation_memory_mechanism": {"scope": "activation_memory_isolation", "decision": "tune",
                                              "reason": "memory_cap", "next_action": "test",
                                              "limitations": ["no_adamw"]}}
    values = {"run_label": "demo", "run_mode": "cpu_rehearsal", "decision_scopes": scopes,
              "handoff": {"consumer": "75_memory_budget_compression", "status": "rehearsal_only"}}
    return values | changes


def test_candidates_table_shows_figures_runs_path_and_verdict():
    table = candidates_table(make_g0(make_candidate("baseline"), make_candidate("hybrid"), make_oom("offload")))
    assert [column.header for column in table.columns] == ["", "baseline", "hybrid", "offload"]
    assert cells_of(table) == {
        "peak allocated, MiB": ["100.0", "40.0", "-"],
        "peak reserved, MiB": ["-", "-", "-"],
        "saving, MiB": ["0.0", "60.0", "-"],
        "step time, ms": ["100.0", "111.1", "-"],
        "samples/s": ["10.000", "9.000", "-"],
        "throughput ratio": ["1.000", "0.900", "-"],
        "eval loss": ["2.0000", "2.0000", "-"],
        "runs": ["3 ok", "3 ok", "3 oom"],
        "path": ["verified", "verified", "not recorded"],
        "verdict": ["over the memory cap", "passes every gate", "out of memory"]}


def test_candidates_table_counts_mixed_runs():
    mixed = make_candidate("hybrid", status="partial_oom", successful_runs=2, oom_runs=1)
    cells = cells_of(candidates_table(make_g0(make_candidate("baseline"), mixed)))
    assert cells["runs"] == ["3 ok", "2 ok, 1 oom"]
    assert cells["verdict"] == ["over the memory cap", "some runs out of memory"]


@pytest.mark.parametrize(("changes", "verdict"), [
    ({"execution_path_verified": False}, "path not verified"),
    ({"execution_path_verified": None}, "path not recorded"),
    ({"status": "failed", "successful_runs": 0, "failed_runs": 3}, "failed"),
    ({"successful_runs": 2}, "runs or figures missing"),
    ({"peak_memory_mb": 91.0}, "over the memory cap"),
    ({"samples_per_s": 1.0}, "below the throughput floor"),
    ({"eval_loss": 2.05}, "eval loss above its limit"),
    ({"peak_memory_mb": 81.0}, "saves too little"),
    ({"samples_per_s": 6.9}, "costs too much throughput"),
    ({}, "passes every gate"),
])
def test_verdict_is_the_first_thing_against_a_candidate(changes, verdict):
    cells = cells_of(candidates_table(make_g0(make_candidate("baseline"), make_candidate("hybrid", **changes))))
    assert cells["verdict"][1] == verdict


def test_record_without_a_budget_judges_no_candidate():
    cells = cells_of(candidates_table(make_g0(budget=None)))
    assert cells["verdict"] == ["reference", *["no memory cap given"] * 3]


def test_record_made_elsewhere_is_shown_without_verdict():
    record = json.loads((GOLDEN / "public_reference.json").read_text(encoding="utf-8"))
    table = candidates_table(record)
    cells = cells_of(table)
    assert table.title == r"Candidates \[Measured elsewhere, not by memstrat]"
    assert cells["peak allocated, MiB"] == ["9,782.7", "9,450.8", "9,448.3", "9,454.6"]
    assert cells["path"] == ["not recorded"] * 4
    assert cells["verdict"] == ["path not recorded"] * 4
    assert cells["runs"] == ["ok"] * 4


def test_gates_table_marks_pass_fail_and_not_asked():
    table = gates_table(make_g0(make_candidate("baseline"), make_candidate("offload"), make_oom("hybrid")))
    assert cells_of(table) == {
        "path verified": ["yes", "pass", "pass", "-"],
        "all runs succeeded": ["yes", "pass", "pass", "fail"],
        "peak allocated, MiB": ["<= 90.0", "fail", "pass", "-"],
        "samples/s": [">= 2.00", "pass", "pass", "-"],
        "saving, MiB": [">= 20.0", "-", "pass", "-"],
        "throughput ratio": [">= 0.70", "-", "fail", "-"],
        "eval loss": ["<= 2.0400", "pass", "pass", "-"]}


def test_gates_table_says_where_quality_is_not_judged():
    cells = cells_of(gates_table(make_g0(quality_floor={"max_val_loss": None, "source": "not_judged"})))
    assert cells["eval loss"] == ["not judged", "-", "-", "-", "-"]


def test_ladder_table_shows_peaks_failures_and_refused_lengths():
    assert cells_of(ladder_table(make_g1())) == {
        "length 256": ["100.0", "60.0", "50.0", "40.0", "-"],
        "length 512": ["200.0", "120.0", "oom", "80.0", "checkpoint"],
        "length 1024": ["-", "-", "-", "-", "refused: 400.0 projected, 350.0 allowed"]}


@pytest.mark.parametrize("table", [candidates_table, gates_table])
def test_four_strategies_fit_a_terminal_unbroken(table):
    lines = lines_of(table(make_g0()))
    assert max(map(len, lines)) <= 80
    assert all(any(name in line for line in lines) for name in ("baseline", "checkpoint", "offload", "hybrid"))


def test_rehearsal_is_stamped_on_every_table():
    stamped = (candidates_table(make_g0()), gates_table(make_g0()), ladder_table(make_g1()),
               decision_panel(make_decision()))
    for shown in stamped:
        assert "[CPU rehearsal, not a GPU result]" in lines_of(shown, 100)[0]
    assert "rehearsal" not in lines_of(candidates_table(make_g0(run_mode="real_gpu")))[0]


def test_decision_panel_shows_both_scopes_and_the_handoff():
    lines = [line.strip("│ ") for line in lines_of(decision_panel(make_decision()), 100)]
    assert lines[1:-1] == ["full training: accept (why); next: do",
                           "activation memory only: tune (memory_cap); next: test",
                           "limits of the second: no_adamw",
                           "handed to 75_memory_budget_compression: rehearsal_only"]


def test_decision_panel_without_a_decision_says_what_is_missing():
    lines = [line.strip("│ ") for line in lines_of(decision_panel(None, ["g1 must exist"]))]
    assert lines[1:-1] == ["not decided", "- g1 must exist"]


@pytest.mark.parametrize("table", [candidates_table, gates_table, ladder_table])
def test_record_without_rows_is_refused(table):
    with pytest.raises(RecordError, match="must (be a list of rows|hold at least one length), got none"):
        table({})
