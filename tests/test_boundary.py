"""G1: every row of its decision table, every gate at the longest length, and the ladder's shape."""

from __future__ import annotations

import copy
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstrat.boundary import decide_memory_boundary, summarize_memory_boundary

BUDGET = {"memory_cap_mb": 11200.0, "min_samples_per_s": 1.0, "min_memory_saving_mb": 512.0,
          "min_throughput_ratio": 0.70}
GIVEN = {"max_val_loss": 1.15, "source": "given"}
DERIVED = {"max_val_loss": 1.0812, "source": "baseline_eval_loss"}

BLOCKED = {"decision": "blocked", "reason": "safety_headroom_guard",
           "next_action": "keep_last_safe_length_or_use_a_dedicated_gpu"}
TOO_FEW = {"decision": "measure", "reason": "too_few_lengths",
           "next_action": "extend_the_ladder_safely"}
ACCEPT = {"decision": "accept_for_activation_memory_scope",
          "reason": "strategy_passes_at_longest_length",
          "next_action": "send_as_mechanism_evidence"}


def make_row(name, peak_memory_mb, samples_per_s=1.8, eval_loss=1.06, **changes):
    return {"name": name, "status": "ok", "successful_runs": 3, "oom_runs": 0, "failed_runs": 0,
            "execution_path_verified": True, "peak_memory_mb": peak_memory_mb,
            "samples_per_s": samples_per_s, "eval_loss": eval_loss} | changes


def make_oom(name):
    return make_row(name, None, None, None, status="oom", successful_runs=0, oom_runs=3,
                    execution_path_verified=None)


def make_length(seq_len, *rows, baseline_mb=9000.0):
    source = "g1_sgd_baseline" if seq_len == 768 else "g1_sgd"
    return {"seq_len": seq_len, "source": source,
            "candidates": [make_row("baseline", baseline_mb, 2.0), *rows]}


def make_ladder(*longest_rows):
    """Two lengths; the longer one, where everything is decided, with the rows given."""
    return [make_length(768, make_row("checkpoint", 5000.0), baseline_mb=6000.0),
            make_length(1024, *longest_rows)]


def summarize(records, budget=BUDGET, floor=GIVEN, **options):
    return summarize_memory_boundary(records, budget, floor, **options)


def decide(records, **options):
    return decide_memory_boundary(summarize(records, **options))


def test_summary_describes_each_length_and_strategy():
    records = [
        make_length(768, make_row("checkpoint", 5000.0, 1.7), baseline_mb=6000.0),
        make_length(1024, make_row("checkpoint", 6000.0, 1.6), make_oom("hybrid"),
                    baseline_mb=8000.0),
    ]
    assert summarize(records) == {
        "status": "completed",
        "tested_seq_lens": [768, 1024],
        "per_length": [
            {"seq_len": 768, "quality_floor": GIVEN, "strategies": {
                "baseline": {"status": "ok", "path": "verified", "peak_memory_mb": 6000.0,
                             "memory_saving_mb": 0.0, "throughput_ratio": 1.0, "quality": "passed",
                             "eligible": False, "reason": "reference"},
                "checkpoint": {"status": "ok", "path": "verified", "peak_memory_mb": 5000.0,
                               "memory_saving_mb": 1000.0, "throughput_ratio": 0.85,
                               "quality": "passed", "eligible": True, "reason": None}}},
            {"seq_len": 1024, "quality_floor": GIVEN, "strategies": {
                "baseline": {"status": "ok", "path": "verified", "peak_memory_mb": 8000.0,
                             "memory_saving_mb": 0.0, "throughput_ratio": 1.0, "quality": "passed",
                             "eligible": False, "reason": "reference"},
                "checkpoint": {"status": "ok", "path": "verified", "peak_memory_mb": 6000.0,
                               "memory_saving_mb": 2000.0, "throughput_ratio": 0.8,
                               "quality": "passed", "eligible": True, "reason": None},
                "hybrid": {"status": "oom", "path": "not recorded", "peak_memory_mb": None,
                           "memory_saving_mb": None, "throughput_ratio": None, "quality": None,
                           "eligible": False, "reason": "runs_incomplete"}}},
        ],
        "last_safe_seq_len": {"baseline": 1024, "checkpoint": 1024, "hybrid": None},
        "peak_growth_mb_per_1024_tokens": {"baseline": 8000.0, "checkpoint": 4000.0,
                                           "hybrid": None},
        "eligible_strategies": ["checkpoint"],
        "best_placed_strategy": "checkpoint",
        "best_placed_failed_gate": None,
        "ran_beyond_baseline": [],
    }


# --- the decision table ---


def test_a_blocked_ladder_is_blocked_even_with_eligible_strategies():
    records = make_ladder(make_row("checkpoint", 6000.0))
    assert decide(records, status="blocked") == BLOCKED


def test_a_base_length_whose_baseline_failed_is_blocked_whatever_the_record_says():
    records = [{"seq_len": 768, "candidates": [make_oom("baseline"),
                                               make_row("checkpoint", 5000.0)]}]
    assert decide(records) == BLOCKED
    assert decide(records, status="completed") == BLOCKED


@pytest.mark.parametrize("records", [None, [], "x", [None], [{"candidates": []}]])
def test_no_lengths_at_all_are_blocked(records):
    assert decide(records) == BLOCKED


def test_one_length_is_too_few():
    assert decide([make_length(768, make_row("checkpoint", 5000.0))]) == TOO_FEW


def test_two_lengths_of_which_the_longer_has_no_baseline_are_too_few():
    records = [make_length(768, make_row("checkpoint", 5000.0)),
               {"seq_len": 1024, "candidates": [make_oom("baseline"),
                                                make_row("checkpoint", 6000.0)]}]
    summary = summarize(records)
    assert summary["status"] == "completed_with_safety_boundary"
    assert summary["ran_beyond_baseline"] == ["checkpoint"]
    assert decide_memory_boundary(summary) == TOO_FEW


@pytest.mark.parametrize("status", ["completed", "completed_with_safety_boundary", None])
def test_a_strategy_that_passes_at_the_longest_length_is_accepted_for_the_scope(status):
    assert decide(make_ladder(make_row("checkpoint", 6000.0)), status=status) == ACCEPT


@pytest.mark.parametrize(
    ("changes", "gate", "next_action"),
    [
        ({"execution_path_verified": False}, "path_unverified", "repair_strategy_execution"),
        ({"execution_path_verified": 1}, "path_unverified", "repair_strategy_execution"),
        ({"status": "partial_oom"}, "runs_incomplete",
         "rerun_g1_with_a_new_label_after_freeing_gpu_memory"),
        ({"status": "oom"}, "runs_incomplete",
         "rerun_g1_with_a_new_label_after_freeing_gpu_memory"),
        ({"successful_runs": 2}, "runs_incomplete",
         "rerun_g1_with_a_new_label_after_freeing_gpu_memory"),
        ({"eval_loss": math.nan}, "runs_incomplete",
         "rerun_g1_with_a_new_label_after_freeing_gpu_memory"),
        ({"peak_memory_mb": 11200.1}, "memory_cap", "test_pressure_or_offload_scope"),
        ({"peak_memory_mb": 8488.1}, "memory_saving", "test_pressure_or_offload_scope"),
        ({"samples_per_s": 1.39}, "throughput", "reduce_checkpoint_or_offload_scope"),
        ({"eval_loss": 1.1501}, "quality", "adjust_checkpoint_granularity_or_offload_scope"),
    ],
    ids=repr,
)
def test_a_strategy_that_fails_one_gate_is_tuned_with_that_gate(changes, gate, next_action):
    records = make_ladder(make_row("checkpoint", 6000.0) | changes)
    summary = summarize(records)
    assert summary["per_length"][1]["strategies"]["checkpoint"]["reason"] == gate
    assert summary["eligible_strategies"] == []
    assert decide_memory_boundary(summary) == {
        "decision": "tune", "reason": gate, "next_action": next_action, "strategy": "checkpoint"}


def test_a_strategy_exactly_at_every_limit_is_eligible():
    row = make_row("checkpoint", 8488.0, 1.4, 1.15)
    assert decide(make_ladder(row)) == ACCEPT
    records = make_ladder(row)
    records[1]["candidates"][0]["peak_memory_mb"] = 11712.0
    records[1]["candidates"][1]["peak_memory_mb"] = 11200.0
    assert decide(records) == ACCEPT


def test_the_samples_per_s_floor_of_the_budget_is_not_asked():
    slow = make_ladder(make_row("checkpoint", 6000.0, 0.018))
    slow[1]["candidates"][0]["samples_per_s"] = 0.02
    assert decide(slow) == ACCEPT


def test_only_the_longest_length_counts():
    passes, fails = make_row("checkpoint", 6000.0), make_row("checkpoint", 8900.0)
    shorter = make_length(768, passes)
    longer = make_length(1024, fails)
    assert decide([shorter, longer])["reason"] == "memory_saving"
    assert decide([make_length(768, fails), make_length(1024, passes)]) == ACCEPT


def test_the_longest_length_with_a_baseline_counts_not_the_longest_tested():
    records = [*make_ladder(make_row("checkpoint", 6000.0)),
               {"seq_len": 1280, "candidates": [make_oom("baseline"), make_oom("checkpoint")]}]
    summary = summarize(records)
    assert summary["tested_seq_lens"] == [768, 1024, 1280]
    assert summary["status"] == "completed_with_safety_boundary"
    assert decide_memory_boundary(summary) == ACCEPT


def test_best_placed_is_the_strategy_that_gets_furthest_through_the_gates():
    records = make_ladder(
        make_row("checkpoint", 6000.0, execution_path_verified=False),
        make_row("offload", 7000.0, 0.5),
        make_row("hybrid", 8900.0, 1.8),
    )
    summary = summarize(records)
    assert summary["best_placed_strategy"] == "offload"
    assert decide_memory_boundary(summary)["reason"] == "throughput"


def test_best_placed_among_equals_is_the_lowest_peak():
    records = make_ladder(make_row("checkpoint", 7000.0, 0.5), make_row("offload", 6000.0, 0.4))
    assert decide(records)["strategy"] == "offload"


def test_a_ladder_of_baselines_alone_is_tuned_without_a_strategy():
    assert decide([make_length(768), make_length(1024)]) == {
        "decision": "tune", "reason": "runs_incomplete", "strategy": None,
        "next_action": "rerun_g1_with_a_new_label_after_freeing_gpu_memory"}


def test_eligible_strategies_go_by_peak_and_leave_the_baseline_out():
    records = make_ladder(make_row("checkpoint", 7000.0), make_row("offload", 6000.0),
                          make_row("hybrid", 6000.0, 1.9))
    assert summarize(records)["eligible_strategies"] == ["hybrid", "offload", "checkpoint"]
    free = BUDGET | {"min_memory_saving_mb": 0.0}
    assert "baseline" not in summarize(records, budget=free)["eligible_strategies"]


@pytest.mark.parametrize("summary", [None, {}, [], {"status": "ok"}, {"status": ["completed"]}])
def test_decision_of_no_summary_is_blocked(summary):
    assert decide_memory_boundary(summary) == BLOCKED


@pytest.mark.parametrize(
    "changes",
    [{"last_safe_seq_len": None}, {"last_safe_seq_len": {"baseline": None}},
     {"last_safe_seq_len": {"baseline": 768}}, {"tested_seq_lens": None},
     {"tested_seq_lens": [768]}, {"last_safe_seq_len": {"baseline": math.inf}}],
)
def test_decision_counts_lengths_only_where_the_summary_shows_a_baseline(changes):
    summary = summarize(make_ladder(make_row("checkpoint", 6000.0)))
    assert decide_memory_boundary(summary | changes) == TOO_FEW


# --- the ladder ---


def test_last_safe_length_stops_at_the_first_that_did_not_run():
    records = [make_length(768, make_row("checkpoint", 5000.0)),
               make_length(1024, make_oom("checkpoint")),
               make_length(1280, make_row("checkpoint", 6000.0))]
    assert summarize(records)["last_safe_seq_len"] == {"baseline": 1280, "checkpoint": 768}


def test_a_run_on_an_unverified_path_is_not_safe_ground():
    records = [make_length(768, make_row("checkpoint", 5000.0)),
               make_length(1024, make_row("checkpoint", 6000.0, execution_path_verified=False))]
    assert summarize(records)["last_safe_seq_len"]["checkpoint"] == 768


def test_a_strategy_missing_at_a_length_stops_there():
    records = [make_length(768, make_row("hybrid", 5000.0)), make_length(1024)]
    assert summarize(records)["last_safe_seq_len"]["hybrid"] == 768


def test_growth_is_per_1024_tokens_between_first_and_last_safe_length():
    records = [make_length(1024, baseline_mb=4000.0), make_length(1280, baseline_mb=4600.0),
               make_length(1536, baseline_mb=5000.0)]
    assert summarize(records)["peak_growth_mb_per_1024_tokens"] == {"baseline": 2000.0}


def test_lengths_are_sorted_and_odd_ones_left_out():
    records = [make_length(1024), make_length(768), make_length(None), make_length(True),
               make_length(-5), make_length(2.5), None]
    assert summarize(records)["tested_seq_lens"] == [768, 1024]


def test_two_records_of_one_length_put_the_names_they_share_in_doubt():
    records = [make_length(768), make_length(1024, make_row("checkpoint", 6000.0)),
               make_length(1024)]
    summary = summarize(records)
    assert summary["last_safe_seq_len"]["baseline"] == 768
    assert decide_memory_boundary(summary) == TOO_FEW


def test_ran_beyond_baseline_needs_a_verified_run():
    records = [make_length(768), {"seq_len": 1024, "candidates": [
        make_oom("baseline"), make_row("checkpoint", 6000.0), make_oom("offload"),
        make_row("hybrid", 6000.0, execution_path_verified=False)]}]
    summary = summarize(records)
    assert summary["ran_beyond_baseline"] == ["checkpoint"]
    beyond = summary["per_length"][1]["strategies"]["checkpoint"]
    assert (beyond["eligible"], beyond["reason"]) == (False, "baseline_not_measured")


# --- quality at each length ---


@pytest.mark.parametrize("floor", [DERIVED, None, {"max_val_loss": None, "source": "not_judged"}])
def test_a_floor_that_was_not_given_comes_from_each_lengths_own_baseline(floor):
    records = make_ladder(make_row("checkpoint", 6000.0, eval_loss=2.04))
    records[1]["candidates"][0]["eval_loss"] = 2.0
    summary = summarize(records, floor=floor)
    assert [item["quality_floor"]["max_val_loss"] for item in summary["per_length"]] == [
        pytest.approx(1.0812), pytest.approx(2.04)]
    assert decide_memory_boundary(summary) == ACCEPT
    records[1]["candidates"][1]["eval_loss"] = 2.05
    assert decide(records, floor=floor)["reason"] == "quality"


@pytest.mark.parametrize("floor", [GIVEN, {"max_val_loss": 1.15}])
def test_a_given_floor_holds_at_every_length(floor):
    records = make_ladder(make_row("checkpoint", 6000.0, eval_loss=1.16))
    records[1]["candidates"][0]["eval_loss"] = 2.0
    assert decide(records, floor=floor)["reason"] == "quality"


def test_quality_is_not_judged_at_a_length_without_baseline_and_floor():
    records = [make_length(768), {"seq_len": 1024, "candidates": [
        make_oom("baseline"), make_row("checkpoint", 6000.0)]}]
    described = summarize(records, floor=None)["per_length"][1]
    assert described["quality_floor"] == {"max_val_loss": None, "source": "not_judged"}
    assert described["strategies"]["checkpoint"]["quality"] == "not_judged"


@pytest.mark.parametrize("floor", [{"max_val_loss": math.nan}, {"max_val_loss": "x"}, 3.0])
def test_an_unusable_floor_is_never_met(floor):
    assert decide(make_ladder(make_row("checkpoint", 6000.0)), floor=floor)["reason"] == "quality"


def test_summary_leaves_its_input_as_it_was():
    records = make_ladder(make_row("checkpoint", 6000.0))
    before = copy.deepcopy(records)
    summarize(records)
    assert records == before


values = st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=2),
                   st.just(10**400))
odd = st.fixed_dictionaries({}, optional=dict.fromkeys(
    ["status", "successful_runs", "oom_runs", "failed_runs", "execution_path_verified",
     "peak_memory_mb", "samples_per_s", "eval_loss"], values))


@settings(max_examples=200)
@given(row=odd, base=odd, status=values, budget=st.one_of(st.just(BUDGET), values), floor=values)
def test_a_strategy_is_accepted_only_on_proven_rows_and_never_for_full_training(
        row, base, status, budget, floor):
    records = make_ladder(make_row("checkpoint", 6000.0) | row)
    records[1]["candidates"][0] |= base
    summary = summarize_memory_boundary(records, budget, floor, status=status)
    decided = decide_memory_boundary(summary)
    json.dumps([summary, decided], allow_nan=False)
    assert decided["decision"] in {"blocked", "measure", "tune",
                                   "accept_for_activation_memory_scope"}
    if decided["decision"].startswith("accept"):
        proven = records[1]["candidates"]
        assert all(item["status"] == "ok" and item["execution_path_verified"] is True
                   for item in proven)
        assert proven[0]["peak_memory_mb"] - proven[1]["peak_memory_mb"] >= 511.999
