from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import Path

import pytest

from memstrat import explorer, widgets
from memstrat.errors import UnknownNameError


@pytest.fixture(autouse=True)
def english(monkeypatch):
    monkeypatch.setenv("MEMSTRAT_LANGUAGE", "en")


def test_table_is_text_and_html_of_the_same_rows():
    table = widgets.Table(["name", "peak_memory_mb"], [["baseline", 33.25], ["<b>", None]])
    assert repr(table) == "name      peak_memory_mb\nbaseline  33.2\n<b>       -"
    html = table._repr_html_()
    assert "33.2</td>" in html and "&lt;b&gt;" in html and "<b>" not in html


def test_table_aligns_chinese_by_its_width():
    assert repr(widgets.Table(["策略", "值"], [["a", "1"]])) == "策略  值\na     1"


def test_reference_records_are_there_and_others_are_not():
    assert widgets.reference_record("tiny", "g0")["run_mode"] == "cpu_rehearsal"
    assert widgets.reference_record("tiny", "decision")["handoff"]["status"] == "rehearsal_only"
    assert [row["peak_memory_mb"] for row in widgets.reference_record("public")["candidates"]] == [
        9782.74, 9450.76, 9448.33, 9454.64]
    with pytest.raises(UnknownNameError, match="reference: must be one of tiny, smollm2, public"):
        widgets.reference_record("public", "g1")


@pytest.mark.parametrize(("packaged", "recorded"), [
    ("tiny_g0", "76_cpu_rehearsal_memory_tiny_cpu_v1"), ("tiny_g1", "76_cpu_rehearsal_memory_boundary_tiny_cpu_v1"),
    ("tiny_decision", "76_memory_strategy_decision_tiny_cpu_v1"),
    ("smollm2_g0", "76_cpu_rehearsal_memory_smollm2_cpu_v1")])
def test_reference_records_are_the_committed_ones(packaged, recorded):
    ours = files("memstrat").joinpath("reference", f"{packaged}.json").read_bytes()
    assert ours == (Path(__file__).parents[1] / "benchmarks" / "results" / f"{recorded}.json").read_bytes()


def test_reference_g1_rests_on_the_reference_g0_by_hash():
    g0 = files("memstrat").joinpath("reference", "tiny_g0.json").read_bytes()
    assert widgets.reference_record("tiny", "g1")["source_g0_sha256"] == hashlib.sha256(g0).hexdigest()


def test_other_stages_cells_say_so_and_do_nothing(capsys):
    assert widgets.is_my_stage("g0", "g0") and capsys.readouterr().out == ""
    assert not widgets.is_my_stage("g0", "prepare")
    assert "RUN_STAGE is 'prepare': this cell waits for 'g0'" in capsys.readouterr().out
    with pytest.raises(UnknownNameError):
        widgets.is_my_stage("g0", "G0")


def test_all_done_names_what_is_missing(monkeypatch, capsys):
    import memstrat

    monkeypatch.setattr(memstrat, "is_done", lambda grade_id: grade_id == "ex_pairs", raising=False)
    assert not widgets.all_done("ex_validate", "ex_pairs")
    assert "this cell uses ex_validate. Finish it" in capsys.readouterr().out


@pytest.mark.parametrize(("gates", "decision", "reason"), [
    ({}, "accept", "strategy_is_best_feasible_option"),
    ({"memory_cap_mb": 20}, "reject", "no_strategy_meets_budget_and_quality"),
    ({"memory_cap_mb": 40, "min_memory_saving_mb": 12}, "tune", "memory_saving_below_meaningful_threshold"),
    ({"min_throughput_ratio": 1.0, "min_memory_saving_mb": 0}, "tune", "throughput_loss_exceeds_budget"),
])
def test_decision_follows_the_gates(gates, decision, reason):
    record = widgets.reference_record("tiny", "g0")
    found = explorer.decide(explorer.with_budget(record, gates))
    assert (found["decision"], found["reason"]) == (decision, reason)
    assert record["budget"]["memory_cap_mb"] == 30.0


def test_record_without_path_is_shown_and_not_decided():
    found = explorer.decide(widgets.reference_record("public"))
    assert found["decision"] == "-" and "execution_path_verified: must be recorded" in found["reason"]


def test_sliders_redraw_plot_decision_and_table():
    box = explorer.explore_gates(widgets.reference_record("tiny", "g0"))
    *sliders, decision, picture, table = box.children
    assert [slider.description for slider in sliders] == [
        "memory cap, MiB", "minimum saving, MiB", "minimum throughput ratio", "throughput floor, samples/s"]
    before = decision.value, picture.value, table.value
    assert "<b>accept</b>" in before[0] and 'alt="' in before[1]
    sliders[0].value = sliders[0].min
    assert "<b>reject</b>" in decision.value
    assert picture.value != before[1] and table.value != before[2]


def test_explorer_speaks_chinese(monkeypatch):
    monkeypatch.setenv("MEMSTRAT_LANGUAGE", "zh")
    box = explorer.explore_gates(widgets.reference_record("tiny", "g0"))
    assert box.children[0].description == "内存上限，MiB"
    assert "有策略过了所有门槛" in box.children[4].value


def test_table_headings_follow_the_language_and_keys_do_not(monkeypatch):
    monkeypatch.setenv("MEMSTRAT_LANGUAGE", "zh")
    table = widgets.Table(["strategy", "peak_memory_mb"], [["baseline", 1.0]])
    assert table.columns == ["策略", "peak_memory_mb"]
