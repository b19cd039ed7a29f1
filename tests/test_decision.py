"""G0: every row of the decision table, every known answer, and what must never be a gain."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstrat import decision
from memstrat.decision import (
    decide_full_training_adoption,
    decide_memory_strategy_project,
    find_incomplete_candidates,
    summarize_memory_strategy_candidates,
)
from memstrat.errors import RecordError

GOLDEN = Path(__file__).parent / "golden"
BUDGET = {"memory_cap_mb": 12000.0, "min_samples_per_s": 0.0, "min_memory_saving_mb": 512.0,
          "min_throughput_ratio": 0.70}
FLOOR = {"max_val_loss": 1.15, "source": "given"}

ACCEPT = {"decision": "accept", "reason": "strategy_is_best_feasible_option",
          "next_action": "promote_to_training_run"}
REJECT = {"decision": "reject", "reason": "no_strategy_meets_budget_and_quality",
          "next_action": "rework_checkpoint_or_offload_scope"}
NO_BASELINE = {"decision": "tune", "reason": "baseline_not_measured",
               "next_action": "rerun_at_a_shorter_length_or_on_a_larger_device"}
QUALITY = {"decision": "tune", "reason": "strategy_needs_quality_recovery",
           "next_action": "adjust_checkpoint_granularity_or_offload_scope"}
BASELINE_BEST = {"decision": "tune", "reason": "baseline_still_best_under_current_budget",
                 "next_action": "revisit_strategy_mix"}
SAVING = {"decision": "tune", "reason": "memory_saving_below_meaningful_threshold",
          "next_action": "test_pressure_or_offload_scope"}
THROUGHPUT = {"decision": "tune", "reason": "throughput_loss_exceeds_budget",
              "next_action": "reduce_checkpoint_or_offload_scope"}


def make_row(name, peak_memory_mb=9000.0, samples_per_s=9.0, eval_loss=1.06, **changes):
    return {"name": name, "status": "ok", "successful_runs": 3, "oom_runs": 0, "failed_runs": 0,
            "execution_path_verified": True, "peak_memory_mb": peak_memory_mb,
            "samples_per_s": samples_per_s, "eval_loss": eval_loss} | changes


def make_baseline(**changes):
    return make_row("baseline", 10000.0, 10.0) | changes


def make_oom(name):
    return make_row(name, None, None, None, status="oom", successful_runs=0, oom_runs=3,
                    execution_path_verified=None)


def make_summary(**changes):
    return {"feasible_count": 2, "quality_failed_count": 0, "best_candidate": "checkpoint",
            "baseline_peak_memory_mb": 10000.0, "memory_saving_mb": 1000.0,
            "throughput_ratio": 0.9, "min_memory_saving_mb": 512.0,
            "min_throughput_ratio": 0.70} | changes


def summarize(*rows, budget=BUDGET, floor=FLOOR):
    return summarize_memory_strategy_candidates(list(rows), budget, floor)


def decide(*rows, budget=BUDGET, floor=FLOOR):
    return decide_memory_strategy_project(summarize(*rows, budget=budget, floor=floor))


KNOWN_ROWS = [make_row("baseline", 18000.0, 8.0, 1.06), make_row("checkpoint", 11800.0, 6.6, 1.08),
              make_row("offload", 10500.0, 5.2, 1.09), make_row("hybrid", 9800.0, 6.1, 1.11)]
KNOWN_BUDGET = {"memory_cap_mb": 12000.0, "min_samples_per_s": 6.0}


def test_summary_of_the_first_known_answer():
    assert summarize(*KNOWN_ROWS, budget=KNOWN_BUDGET) == {
        "candidate_count": 4, "measured_count": 4, "oom_count": 0, "invalid_count": 0,
        "feasible_count": 2, "quality_failed_count": 0, "feasible_names": ["hybrid", "checkpoint"],
        "best_candidate": "hybrid", "baseline_peak_memory_mb": 18000.0,
        "best_peak_memory_mb": 9800.0, "memory_saving_mb": 8200.0,
        "throughput_ratio": pytest.approx(0.7625), "min_memory_saving_mb": 512.0,
        "min_throughput_ratio": 0.70}
    assert decide(*KNOWN_ROWS, budget=KNOWN_BUDGET) == ACCEPT


def test_two_candidates_beyond_the_budget_are_rejected():
    rows = [make_row("checkpoint", 13000.0, 6.4, 1.10), make_row("offload", 11000.0, 4.8, 1.12)]
    assert decide(*rows, budget=KNOWN_BUDGET) == REJECT


def test_public_figures_save_too_little():
    record = json.loads((GOLDEN / "public_reference.json").read_text(encoding="utf-8"))
    rows = [row | {"successful_runs": 3, "execution_path_verified": True}
            for row in record["candidates"]]
    summary = summarize(*rows, budget=record["budget"], floor=record["quality_floor"])
    assert summary["feasible_names"] == ["checkpoint", "hybrid", "baseline"]
    assert summary["best_candidate"] == "checkpoint"
    assert summary["memory_saving_mb"] == pytest.approx(331.98)
    assert summary["throughput_ratio"] == pytest.approx(0.8765555)
    assert decide_memory_strategy_project(summary) == SAVING


def test_public_figures_without_path_fields_are_never_decided():
    record = json.loads((GOLDEN / "public_reference.json").read_text(encoding="utf-8"))
    with pytest.raises(RecordError, match="execution_path_verified: must be recorded for every ok "
                                          "candidate, got none for baseline, checkpoint, offload, "
                                          "hybrid"):
        decide_full_training_adoption(record["candidates"], record["budget"],
                                      record["quality_floor"], 3)
    assert summarize(*record["candidates"], budget=record["budget"])["feasible_count"] == 0


def test_a_slow_hybrid_never_turns_an_acceptable_checkpoint_into_tune():
    rows = [make_baseline(), make_row("checkpoint", 9100.0, 9.0), make_row("hybrid", 9000.0, 6.0)]
    summary = summarize(*rows)
    assert summary["feasible_names"] == ["hybrid", "checkpoint", "baseline"]
    assert (summary["best_candidate"], summary["best_peak_memory_mb"]) == ("checkpoint", 9100.0)
    assert summary["memory_saving_mb"] == 900.0
    assert decide_memory_strategy_project(summary) == ACCEPT


# --- the decision table, from summaries ---


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ACCEPT),
        ({"feasible_count": 0, "best_candidate": None}, REJECT),
        ({"feasible_count": 0, "baseline_peak_memory_mb": None}, REJECT),
        ({"baseline_peak_memory_mb": None, "memory_saving_mb": None, "throughput_ratio": None},
         NO_BASELINE),
        ({"baseline_peak_memory_mb": None, "quality_failed_count": 1}, NO_BASELINE),
        ({"quality_failed_count": 1}, ACCEPT),
        ({"quality_failed_count": 1, "memory_saving_mb": 511.0}, QUALITY),
        ({"quality_failed_count": 1, "best_candidate": "baseline"}, QUALITY),
        ({"best_candidate": "baseline", "memory_saving_mb": 0.0, "throughput_ratio": 1.0},
         BASELINE_BEST),
        ({"best_candidate": "baseline"}, BASELINE_BEST),
        ({"memory_saving_mb": 511.99}, SAVING),
        ({"memory_saving_mb": 511.99, "throughput_ratio": 0.1}, SAVING),
        ({"throughput_ratio": 0.699}, THROUGHPUT),
        ({"memory_saving_mb": 512, "throughput_ratio": 0.7}, ACCEPT),
        ({"memory_saving_mb": 512.3 - 0.3, "throughput_ratio": 0.77 / 1.1}, ACCEPT),
        ({"memory_saving_mb": 0, "min_memory_saving_mb": 0}, ACCEPT),
        ({"memory_saving_mb": math.nan}, SAVING),
        ({"memory_saving_mb": True, "min_memory_saving_mb": 0}, SAVING),
        ({"throughput_ratio": None}, THROUGHPUT),
        ({"throughput_ratio": math.inf}, THROUGHPUT),
        ({"min_memory_saving_mb": math.nan}, SAVING),
        ({"min_throughput_ratio": "low"}, THROUGHPUT),
        ({"best_candidate": None}, REJECT),
        ({"best_candidate": ""}, REJECT),
        ({"feasible_count": True}, REJECT),
    ],
    ids=repr,
)
def test_decision_follows_the_first_matching_row(changes, expected):
    assert decide_memory_strategy_project(make_summary(**changes)) == expected


def test_decision_uses_the_default_minimums_where_the_summary_has_none():
    bare = {key: value for key, value in make_summary().items() if not key.startswith("min_")}
    assert decide_memory_strategy_project(bare) == ACCEPT
    assert decide_memory_strategy_project(bare | {"memory_saving_mb": 511.0}) == SAVING
    assert decide_memory_strategy_project(bare | {"throughput_ratio": 0.69}) == THROUGHPUT


@pytest.mark.parametrize("summary", [None, {}, [], "accept"])
def test_decision_of_no_summary_is_reject(summary):
    assert decide_memory_strategy_project(summary) == REJECT


# --- the decision table, from rows ---


def test_rows_with_a_saving_and_throughput_at_the_minimum_are_accepted():
    assert decide(make_baseline(), make_row("checkpoint", 9488.0, 7.0)) == ACCEPT


def test_rows_with_a_saving_below_the_minimum_are_tuned():
    assert decide(make_baseline(), make_row("checkpoint", 9488.1, 7.0)) == SAVING


def test_rows_with_a_ratio_below_the_minimum_are_tuned():
    assert decide(make_baseline(), make_row("checkpoint", 9000.0, 6.99)) == THROUGHPUT


def test_rows_where_nothing_beats_the_baseline_are_tuned():
    rows = [make_baseline(), make_row("checkpoint", 10001.0)]
    assert summarize(*rows)["best_candidate"] == "baseline"
    assert summarize(*rows)["memory_saving_mb"] == 0.0
    assert decide(*rows) == BASELINE_BEST


def test_rows_where_a_candidate_failed_quality_are_tuned():
    rows = [make_baseline(), make_row("checkpoint", eval_loss=1.16)]
    assert summarize(*rows)["quality_failed_count"] == 1
    assert decide(*rows) == QUALITY


def test_a_quality_failure_does_not_hold_back_another_worthwhile_candidate():
    rows = [make_baseline(), make_row("checkpoint", 8000.0, eval_loss=1.16), make_row("hybrid")]
    assert summarize(*rows)["best_candidate"] == "hybrid"
    assert decide(*rows) == ACCEPT


def test_rows_with_an_unmeasured_baseline_are_tuned():
    rows = [make_oom("baseline"), make_row("checkpoint")]
    summary = summarize(*rows)
    assert summary["feasible_names"] == ["checkpoint"]
    assert summary["baseline_peak_memory_mb"] is summary["memory_saving_mb"] is None
    assert summary["throughput_ratio"] is None
    assert decide(*rows) == NO_BASELINE


def test_an_infeasible_baseline_is_still_what_savings_are_measured_against():
    rows = [make_baseline(peak_memory_mb=20000.0), make_row("checkpoint")]
    summary = summarize(*rows)
    assert summary["feasible_names"] == ["checkpoint"]
    assert summary["memory_saving_mb"] == 11000.0
    assert decide(*rows) == ACCEPT


@pytest.mark.parametrize(
    "changes",
    [{"peak_memory_mb": math.nan}, {"samples_per_s": 0.0}, {"eval_loss": None},
     {"execution_path_verified": False}, {"execution_path_verified": None},
     {"status": "partial_oom"}, {"successful_runs": 2}],
    ids=repr,
)
def test_a_baseline_that_is_no_evidence_is_not_measured(changes):
    assert decide(make_baseline(**changes), make_row("checkpoint")) == NO_BASELINE


def test_no_baseline_row_and_two_of_them_are_not_measured():
    assert decide(make_row("checkpoint")) == NO_BASELINE
    rows = [make_baseline(), make_baseline(), make_row("checkpoint")]
    assert decide(*rows) == NO_BASELINE
    assert summarize(*rows)["feasible_names"] == ["checkpoint"]


@pytest.mark.parametrize(
    "changes",
    [{"status": "oom"}, {"status": "failed"}, {"status": "partial_oom"}, {"status": None},
     {"execution_path_verified": False}, {"execution_path_verified": 1},
     {"execution_path_verified": "True"}, {"execution_path_verified": None},
     {"successful_runs": 2}, {"successful_runs": 2, "oom_runs": 1}, {"peak_memory_mb": math.nan},
     {"peak_memory_mb": -1.0}, {"peak_memory_mb": True}, {"samples_per_s": math.inf},
     {"eval_loss": -math.inf}, {"loss": math.nan}, {"name": None}, {"name": ""}],
    ids=repr,
)
def test_an_unproven_candidate_is_never_feasible(changes):
    rows = [make_baseline(), make_row("checkpoint") | changes]
    assert summarize(*rows)["feasible_names"] == ["baseline"]
    assert decide(*rows) == BASELINE_BEST


def test_an_unverified_candidate_is_measured_but_its_quality_is_no_evidence():
    rows = [make_baseline(), make_row("checkpoint", eval_loss=9.0, execution_path_verified=False)]
    summary = summarize(*rows)
    assert (summary["measured_count"], summary["quality_failed_count"]) == (2, 0)
    assert summary["invalid_count"] == 0


def test_a_failed_and_an_ok_row_of_one_name_are_both_in_doubt():
    rows = [make_baseline(), make_row("checkpoint", status="failed"), make_row("checkpoint")]
    summary = summarize(*rows)
    assert summary["feasible_names"] == ["baseline"]
    assert (summary["measured_count"], summary["invalid_count"]) == (1, 2)


def test_rows_are_counted_once_each():
    rows = [make_baseline(), make_row("checkpoint"), make_oom("offload"),
            make_row("hybrid", status="failed", successful_runs=1, failed_runs=2),
            make_row("fifth", status="partial_oom", successful_runs=2, oom_runs=1),
            make_row("sixth", math.nan)]
    summary = summarize(*rows)
    assert {key: value for key, value in summary.items() if key.endswith("_count")} == {
        "candidate_count": 6, "measured_count": 2, "oom_count": 1, "invalid_count": 3,
        "feasible_count": 2, "quality_failed_count": 0}


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([make_row("a", 9000.0), make_row("b", 8999.0)], ["b", "a"]),
        ([make_row("a", 9000.0, 8.0), make_row("b", 9000.0, 9.0)], ["b", "a"]),
        ([make_row("a", eval_loss=1.08), make_row("b", eval_loss=1.07)], ["b", "a"]),
        ([make_row("a"), make_row("b")], ["a", "b"]),
        ([make_row("b"), make_row("a")], ["b", "a"]),
        ([make_row("a", 9000), make_row("b", 8999)], ["b", "a"]),
    ],
)
def test_feasible_names_go_by_peak_then_throughput_then_loss(rows, order):
    assert summarize(*rows)["feasible_names"] == order


def test_quality_that_is_not_judged_neither_blocks_nor_fails():
    rows = [make_baseline(), make_row("checkpoint", eval_loss=99.0)]
    for floor in (None, {"max_val_loss": None, "source": "not_judged"}):
        assert summarize(*rows, floor=floor)["quality_failed_count"] == 0
        assert decide(*rows, floor=floor) == ACCEPT


def test_minimums_are_copied_from_the_budget():
    budget = BUDGET | {"min_memory_saving_mb": 100, "min_throughput_ratio": 0.5}
    summary = summarize(make_baseline(), budget=budget)
    assert (summary["min_memory_saving_mb"], summary["min_throughput_ratio"]) == (100.0, 0.5)


def test_an_unusable_minimum_is_null_and_never_met():
    rows = [make_baseline(), make_row("checkpoint")]
    budget = BUDGET | {"min_memory_saving_mb": math.nan}
    assert summarize(*rows, budget=budget)["min_memory_saving_mb"] is None
    assert summarize(*rows, budget=budget)["best_candidate"] == "checkpoint"


@pytest.mark.parametrize("rows", [None, [], "x", [None, 3]])
def test_summary_of_no_rows_leads_to_reject(rows):
    summary = summarize_memory_strategy_candidates(rows, BUDGET, FLOOR)
    assert decide_memory_strategy_project(summary) == REJECT


def test_summary_leaves_its_input_as_it_was():
    rows = [make_baseline(), make_row("checkpoint"), make_row("checkpoint")]
    before = copy.deepcopy(rows)
    summarize(*rows)
    assert rows == before


values = st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=2),
                   st.just(10**400))
odd = st.fixed_dictionaries({}, optional=dict.fromkeys(
    ["status", "successful_runs", "oom_runs", "failed_runs", "execution_path_verified",
     "peak_memory_mb", "samples_per_s", "eval_loss", "loss", "runs"], values))


@settings(max_examples=300)
@given(base=odd, row=odd, budget=st.one_of(st.just(BUDGET), values), floor=values)
def test_accept_needs_two_proven_rows_whatever_comes_in(base, row, budget, floor):
    rows = [make_baseline() | base, make_row("checkpoint") | row]
    summary = summarize_memory_strategy_candidates(rows, budget, floor)
    json.dumps(summary, allow_nan=False)
    if decide_memory_strategy_project(summary)["decision"] == "accept":
        assert all(item["status"] == "ok" for item in rows)
        assert all(item["execution_path_verified"] is True for item in rows)
        assert all(0 < item["peak_memory_mb"] < math.inf for item in rows)
        assert rows[0]["peak_memory_mb"] - rows[1]["peak_memory_mb"] >= 511.999
        assert rows[1]["successful_runs"] >= rows[0]["successful_runs"]


# --- completeness, before any decision ---


INCOMPLETE = {"decision": "tune", "reason": "g0_incomplete_repeats",
              "next_action": "rerun_g0_with_a_new_label_after_freeing_gpu_memory"}


def adopt(*rows, repeats=3, strategies=()):
    return decide_full_training_adoption(list(rows), BUDGET, FLOOR, repeats, strategies)


def test_a_complete_g0_is_decided_by_the_table():
    assert adopt(make_baseline(), make_row("checkpoint"),
                 strategies=["baseline", "checkpoint"]) == ACCEPT


@pytest.mark.parametrize(
    "row",
    [make_oom("offload"), make_row("offload", status="partial_oom", successful_runs=2),
     make_row("offload", status="failed", successful_runs=2, failed_runs=1),
     make_row("offload", successful_runs=2), make_row("offload", successful_runs=None)],
)
def test_an_incomplete_g0_is_measured_again_even_with_a_worthwhile_candidate(row):
    assert adopt(make_baseline(), make_row("checkpoint"), row) == {
        **INCOMPLETE, "incomplete_candidates": ["offload"]}


def test_fewer_runs_than_planned_in_every_row_are_incomplete():
    rows = [make_baseline(successful_runs=2), make_row("checkpoint", successful_runs=2)]
    assert adopt(*rows)["incomplete_candidates"] == ["baseline", "checkpoint"]


def test_an_absent_strategy_is_incomplete():
    result = adopt(make_baseline(), strategies=["baseline", "checkpoint", "hybrid"])
    assert result["incomplete_candidates"] == ["checkpoint", "hybrid"]


def test_an_all_oom_g0_without_any_path_is_decided_as_incomplete():
    assert adopt(make_oom("baseline"), make_oom("hybrid")) == {
        **INCOMPLETE, "incomplete_candidates": ["baseline", "hybrid"]}


@pytest.mark.parametrize("repeats", [0, None, -3, True, "3", math.nan])
def test_without_planned_repeats_nothing_is_complete(repeats):
    assert find_incomplete_candidates([make_baseline()], repeats) == ["baseline"]


def test_more_runs_than_planned_are_complete():
    assert find_incomplete_candidates([make_baseline(successful_runs=4)], 3) == []


def test_both_boundary_functions_are_reachable_from_decision():
    from memstrat import boundary

    assert decision.summarize_memory_boundary is boundary.summarize_memory_boundary
    assert decision.decide_memory_boundary is boundary.decide_memory_boundary
