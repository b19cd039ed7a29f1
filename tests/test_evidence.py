"""The reference of the three exercises, and the pairs a record holds."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstrat.errors import InputError, RecordError
from memstrat.evidence import (
    build_strategy_pair_evidence,
    decide_strategy_handoff,
    finite_number,
    pairs_from_record,
    validate_strategy_experiment,
)

GOLDEN = Path(__file__).parent / "golden"
NOT_NUMBERS = [None, "8.0", True, math.nan, math.inf, -math.inf, 10**400, [8.0], {}, 1 + 2j]


def make_row(name="checkpoint", **changes):
    return {
        "name": name, "workload_id": "train-b2-s1024", "hardware_id": "gpu-a", "repeat_count": 5,
        "status": "ok", "execution_path_verified": True, "peak_memory_mb": 8200.0,
        "samples_per_s": 6.8, "eval_loss": 1.08,
    } | changes


def make_baseline(**changes):
    return make_row("baseline", peak_memory_mb=11000.0, samples_per_s=8.0, eval_loss=1.06) | changes


def make_oom(name="offload", **changes):
    return make_row(name, status="oom", execution_path_verified=False, peak_memory_mb=None,
                    samples_per_s=None, eval_loss=None) | changes


def without(row, *keys):
    return {key: value for key, value in row.items() if key not in keys}


def make_comparable(name="checkpoint", **changes):
    return {"name": name, "status": "comparable", "repeat_count": 5,
            "execution_path_verified": True} | changes


def make_evidence(*comparisons, baseline_repeats=5):
    return {"baseline": {"repeat_count": baseline_repeats}, "comparisons": list(comparisons)}


# --- validate_strategy_experiment ---


def test_validate_accepts_the_known_pair_with_an_oom_row():
    assert validate_strategy_experiment(make_baseline(), [make_row(), make_oom()]) == {
        "is_valid": True, "issues": [], "candidate_names": ["checkpoint", "offload"],
    }


def test_validate_reports_another_machine():
    result = validate_strategy_experiment(make_baseline(), [make_row(hardware_id="gpu-b")])
    assert result == {"is_valid": False, "issues": ["checkpoint:hardware_id_mismatch"],
                      "candidate_names": ["checkpoint"]}


def test_validate_reports_the_second_of_one_name_and_keeps_both_names():
    result = validate_strategy_experiment(make_baseline(), [make_row(), make_row()])
    assert result == {"is_valid": False, "issues": ["checkpoint:duplicate_name"],
                      "candidate_names": ["checkpoint", "checkpoint"]}


def test_validate_reports_a_duplicate_once_per_repetition():
    rows = [make_row(), make_row("hybrid"), make_row(), make_row()]
    assert validate_strategy_experiment(make_baseline(), rows)["issues"] == [
        "checkpoint:duplicate_name", "checkpoint:duplicate_name"]


def test_validate_keeps_the_order_of_issues():
    rows = [
        make_row(),
        make_row(workload_id="other", hardware_id="gpu-b", repeat_count=4,
                 execution_path_verified=False),
        make_row(""),
        make_row("hybrid", repeat_count=1),
    ]
    assert validate_strategy_experiment(make_baseline(eval_loss=None), rows) == {
        "is_valid": False,
        "issues": [
            "checkpoint:duplicate_name", "checkpoint:workload_id_mismatch",
            "checkpoint:hardware_id_mismatch", "checkpoint:repeat_count_mismatch",
            "checkpoint:execution_path_unverified", "candidate:missing_name",
            "hybrid:repeat_count_mismatch", "baseline:invalid_metrics",
        ],
        "candidate_names": ["checkpoint", "checkpoint", "hybrid"],
    }


@pytest.mark.parametrize("name", [None, "", 7, True, ["checkpoint"]])
def test_validate_checks_nothing_else_for_a_row_without_a_name(name):
    row = make_row(name, hardware_id="gpu-b", execution_path_verified=False)
    assert validate_strategy_experiment(make_baseline(), [row]) == {
        "is_valid": False, "issues": ["candidate:missing_name"], "candidate_names": []}


@pytest.mark.parametrize("row", [None, "checkpoint", 3, ["name"]])
def test_validate_reads_what_is_no_dict_as_a_row_without_a_name(row):
    result = validate_strategy_experiment(make_baseline(), [row])
    assert result["issues"] == ["candidate:missing_name"]


@pytest.mark.parametrize("candidates", [None, "checkpoint", {"checkpoint": {}}, 5])
def test_validate_never_passes_what_is_no_list(candidates):
    result = validate_strategy_experiment(make_baseline(), candidates)
    assert result == {"is_valid": False, "issues": ["candidate:missing_name"],
                      "candidate_names": []}


def test_validate_accepts_an_empty_list_and_a_tuple():
    assert validate_strategy_experiment(make_baseline(), [])["is_valid"] is True
    assert validate_strategy_experiment(make_baseline(), (make_row(),))["is_valid"] is True


@pytest.mark.parametrize("key", ["workload_id", "hardware_id", "repeat_count"])
@pytest.mark.parametrize("side", ["baseline", "candidate", "both"])
def test_validate_reads_a_missing_key_as_a_mismatch(key, side):
    baseline = without(make_baseline(), key) if side != "candidate" else make_baseline()
    candidate = without(make_row(), key) if side != "baseline" else make_row()
    assert validate_strategy_experiment(baseline, [candidate])["issues"] == [
        f"checkpoint:{key}_mismatch"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("workload_id", None), ("workload_id", ""), ("workload_id", ["a"]), ("hardware_id", True),
     ("hardware_id", math.nan), ("repeat_count", None), ("repeat_count", True),
     ("repeat_count", "5"), ("repeat_count", math.inf)],
)
def test_validate_takes_no_identity_from_equal_odd_values(key, value):
    result = validate_strategy_experiment(make_baseline(**{key: value}), [make_row(**{key: value})])
    assert result["issues"] == [f"checkpoint:{key}_mismatch"]


@pytest.mark.parametrize("ours, theirs", [(1, True), (5, "5"), (5, 5.5)])
def test_validate_tells_a_count_from_what_only_looks_like_it(ours, theirs):
    result = validate_strategy_experiment(make_baseline(repeat_count=ours),
                                          [make_row(repeat_count=theirs)])
    assert result["issues"] == ["checkpoint:repeat_count_mismatch"]


def test_validate_accepts_equal_counts_of_other_number_types():
    rows = [make_row(repeat_count=5.0), make_row("hybrid", repeat_count=np.int64(5))]
    assert validate_strategy_experiment(make_baseline(), rows)["is_valid"] is True


@pytest.mark.parametrize("verified", [False, None, 1, "True", "yes", np.bool_(True), [True]])
def test_validate_verifies_a_path_only_by_exactly_true(verified):
    result = validate_strategy_experiment(make_baseline(),
                                          [make_row(execution_path_verified=verified)])
    assert result["issues"] == ["checkpoint:execution_path_unverified"]


def test_validate_reads_a_missing_path_as_unverified():
    row = without(make_row(), "execution_path_verified")
    assert validate_strategy_experiment(make_baseline(), [row])["issues"] == [
        "checkpoint:execution_path_unverified"]


@pytest.mark.parametrize(
    ("status", "asked"),
    [("oom", False), ("failed", False), ("ok", True), ("partial_oom", True), (None, True),
     ("OOM", True), (["oom"], True)],
)
def test_validate_asks_the_path_of_all_but_oom_and_failed_rows(status, asked):
    row = make_row(status=status, execution_path_verified=False)
    expected = ["checkpoint:execution_path_unverified"] if asked else []
    assert validate_strategy_experiment(make_baseline(), [row])["issues"] == expected


@pytest.mark.parametrize("metric", ["peak_memory_mb", "samples_per_s", "eval_loss"])
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_validate_reports_a_baseline_metric_that_is_no_finite_number(metric, value):
    result = validate_strategy_experiment(make_baseline(**{metric: value}), [make_row()])
    assert result["issues"] == ["baseline:invalid_metrics"]


def test_validate_judges_no_gain_and_no_candidate_metric():
    rows = [make_row(peak_memory_mb=99999.0, samples_per_s=math.nan, eval_loss=None)]
    assert validate_strategy_experiment(make_baseline(), rows)["is_valid"] is True


def test_validate_reports_everything_for_a_baseline_that_is_no_dict():
    assert validate_strategy_experiment(None, [make_row()])["issues"] == [
        "checkpoint:workload_id_mismatch", "checkpoint:hardware_id_mismatch",
        "checkpoint:repeat_count_mismatch", "baseline:invalid_metrics"]


# --- build_strategy_pair_evidence ---


def test_build_pairs_the_known_answer():
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(), make_oom()])
    comparable, oom = evidence["comparisons"]
    assert {key: value for key, value in evidence.items() if key.endswith("_count")} == {
        "comparable_count": 1, "oom_count": 1, "failed_count": 0, "invalid_count": 0}
    assert oom == {"name": "offload", "status": "oom"}
    assert comparable == {
        "name": "checkpoint", "status": "comparable", "repeat_count": 5,
        "execution_path_verified": True, "candidate_peak_memory_mb": 8200.0,
        "candidate_samples_per_s": 6.8, "candidate_eval_loss": 1.08, "memory_saving_mb": 2800.0,
        "throughput_ratio": pytest.approx(0.85), "quality_delta": pytest.approx(0.02),
    }
    assert evidence["baseline"] == make_baseline()


def test_build_takes_integer_metrics():
    evidence = build_strategy_pair_evidence(
        make_baseline(peak_memory_mb=11000, samples_per_s=8),
        [make_row(peak_memory_mb=8200, samples_per_s=6)])
    assert evidence["comparisons"][0]["memory_saving_mb"] == 2800.0
    assert evidence["comparisons"][0]["throughput_ratio"] == 0.75


def test_build_keeps_a_loss_as_a_loss():
    row = make_row(peak_memory_mb=12000.0, samples_per_s=9.0, eval_loss=1.0)
    comparison = build_strategy_pair_evidence(make_baseline(), [row])["comparisons"][0]
    assert comparison["memory_saving_mb"] == -1000.0
    assert comparison["throughput_ratio"] == 1.125
    assert comparison["quality_delta"] == pytest.approx(-0.06)


@pytest.mark.parametrize("status", ["oom", "failed"])
def test_build_never_compares_a_failure_even_with_good_metrics(status):
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(status=status)])
    assert evidence["comparisons"] == [{"name": "checkpoint", "status": status}]
    assert evidence[f"{status}_count"] == 1
    assert evidence["comparable_count"] == evidence["invalid_count"] == 0


@pytest.mark.parametrize("status", ["partial_oom", "OK", "", None, 1, True, ["ok"], "comparable"])
def test_build_reads_any_other_status_as_invalid(status):
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(status=status)])
    assert evidence["comparisons"] == [{"name": "checkpoint", "status": "invalid"}]
    assert evidence["invalid_count"] == 1


def test_build_reads_a_missing_status_as_ok():
    baseline, row = without(make_baseline(), "status"), without(make_row(), "status")
    assert build_strategy_pair_evidence(baseline, [row])["comparable_count"] == 1


@pytest.mark.parametrize("metric", ["peak_memory_mb", "samples_per_s", "eval_loss"])
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_build_reads_a_metric_that_is_no_finite_number_as_invalid(metric, value):
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(**{metric: value})])
    assert evidence["comparisons"] == [{"name": "checkpoint", "status": "invalid"}]


def test_build_reads_a_missing_metric_as_invalid():
    row = without(make_row(), "peak_memory_mb")
    assert build_strategy_pair_evidence(make_baseline(), [row])["invalid_count"] == 1


@pytest.mark.parametrize(
    "changes",
    [{"status": "oom"}, {"status": "failed"}, {"status": None}, {"status": "partial_oom"},
     {"peak_memory_mb": math.nan}, {"eval_loss": None}, {"samples_per_s": 0},
     {"samples_per_s": -1.0}, {"samples_per_s": math.inf}, {"peak_memory_mb": True}],
    ids=repr,
)
def test_build_compares_nothing_with_an_unusable_baseline(changes):
    rows = [make_row(), make_oom(), make_row("hybrid", status="failed")]
    evidence = build_strategy_pair_evidence(make_baseline(**changes), rows)
    assert evidence["comparisons"] == [
        {"name": "checkpoint", "status": "invalid"}, {"name": "offload", "status": "oom"},
        {"name": "hybrid", "status": "failed"}]
    assert (evidence["comparable_count"], evidence["oom_count"], evidence["failed_count"],
            evidence["invalid_count"]) == (0, 1, 1, 1)


def test_build_keeps_an_unverified_run_comparable_and_says_so():
    rows = [make_row(execution_path_verified=value) for value in (False, None, 1, "True")]
    comparisons = build_strategy_pair_evidence(make_baseline(), rows)["comparisons"]
    assert [item["execution_path_verified"] for item in comparisons] == [False] * 4
    assert {item["status"] for item in comparisons} == {"comparable"}


@pytest.mark.parametrize(
    ("given_count", "read"),
    [(5, 5), (5.0, 5), (np.int64(5), 5), (0, 0), (None, 0), (True, 0), ("5", 0), (2.5, 0), (-3, 0),
     (math.nan, 0), (math.inf, 0)],
)
def test_build_reads_a_repeat_count_that_is_no_count_as_zero(given_count, read):
    row = make_row(repeat_count=given_count)
    comparison = build_strategy_pair_evidence(make_baseline(), [row])["comparisons"][0]
    assert comparison["repeat_count"] == read
    assert type(comparison["repeat_count"]) is int


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [({"peak_memory_mb": 1.7e308}, {"peak_memory_mb": -1.7e308}),
     ({"samples_per_s": 1e-308}, {"samples_per_s": 1e308}),
     ({"eval_loss": -1.7e308}, {"eval_loss": 1.7e308})],
)
def test_build_reads_a_figure_that_overflows_as_invalid(baseline, candidate):
    evidence = build_strategy_pair_evidence(make_baseline(**baseline), [make_row(**candidate)])
    assert evidence["comparisons"] == [{"name": "checkpoint", "status": "invalid"}]


@pytest.mark.parametrize("row", [None, "checkpoint", 3, {}, make_row(""), make_row(None)])
def test_build_compares_no_row_without_a_name(row):
    evidence = build_strategy_pair_evidence(make_baseline(), [row])
    assert evidence["comparisons"] == [{"name": None, "status": "invalid"}]


@pytest.mark.parametrize("candidates", [None, "checkpoint", {}, 4])
def test_build_compares_nothing_that_is_no_list(candidates):
    assert build_strategy_pair_evidence(make_baseline(), candidates)["comparable_count"] == 0


def test_build_returns_plain_numbers_for_numpy_ones():
    row = make_row(peak_memory_mb=np.float32(8200), samples_per_s=np.float64(6.0),
                   eval_loss=np.int32(1))
    evidence = build_strategy_pair_evidence(make_baseline(repeat_count=np.int64(5)), [row])
    numbers = [value for value in evidence["comparisons"][0].values() if isinstance(value, float)]
    assert {type(value) for value in numbers} == {float}
    assert evidence["baseline"]["repeat_count"] == 5
    json.dumps(evidence, allow_nan=False)


def test_build_copies_the_baseline_and_leaves_out_what_json_has_no_word_for():
    baseline = make_baseline(eval_loss=math.nan, stability={"range": [1.0, math.inf]}, odd={1, 2})
    baseline["itself"] = baseline
    baseline["rows"] = rows = []
    rows.append(rows)
    copied = build_strategy_pair_evidence(baseline, [])["baseline"]
    assert copied["eval_loss"] is None and copied["odd"] is None
    assert copied["stability"] == {"range": [1.0, None]}
    assert type(copied["repeat_count"]) is int
    json.dumps(copied, allow_nan=False)


def test_build_shares_nothing_mutable_with_its_input():
    baseline = make_baseline(stability={"range": [1.0]})
    build_strategy_pair_evidence(baseline, [])["baseline"]["stability"]["range"].append(2.0)
    assert baseline["stability"] == {"range": [1.0]}


# --- decide_strategy_handoff ---


def test_handoff_is_ready_with_the_known_evidence():
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(), make_oom()])
    assert decide_strategy_handoff(evidence) == {
        "status": "ready_for_budget_review", "reason": "paired_evidence_complete",
        "eligible_candidates": ["checkpoint"], "next_action": "send_to_memory_budget_project"}


RERUN = {"status": "rerun_required", "reason": "insufficient_repeats", "eligible_candidates": [],
         "next_action": "repeat_paired_runs"}
NO_CANDIDATE = {"status": "no_valid_candidate", "reason": "no_comparable_strategy",
                "eligible_candidates": [], "next_action": "repair_strategy_execution"}


def test_handoff_asks_for_a_rerun_below_the_minimum():
    baseline, rows = make_baseline(repeat_count=2), [make_row(repeat_count=2)]
    evidence = build_strategy_pair_evidence(baseline, rows)
    assert decide_strategy_handoff(evidence, minimum_repeats=3) == RERUN


@pytest.mark.parametrize(
    "evidence",
    [
        make_evidence(make_comparable(), baseline_repeats=2),
        make_evidence(make_comparable(), make_comparable("hybrid", repeat_count=2)),
        make_evidence(make_comparable(repeat_count=2, execution_path_verified=False)),
        make_evidence({"name": "offload", "status": "failed"}, baseline_repeats=2),
    ],
)
def test_handoff_counts_repeats_before_it_asks_for_candidates(evidence):
    assert decide_strategy_handoff(evidence) == RERUN


@pytest.mark.parametrize("repeats", [3, 3.0, 4])
def test_handoff_accepts_exactly_the_minimum_and_more(repeats):
    evidence = make_evidence(make_comparable(repeat_count=repeats), baseline_repeats=repeats)
    assert decide_strategy_handoff(evidence)["eligible_candidates"] == ["checkpoint"]


def test_handoff_finds_no_candidate_among_failures():
    evidence = build_strategy_pair_evidence(make_baseline(), [make_row(status="failed")])
    assert decide_strategy_handoff(evidence) == NO_CANDIDATE


@pytest.mark.parametrize("verified", [False, None, 1, "True"])
def test_handoff_finds_no_candidate_without_a_verified_path(verified):
    evidence = make_evidence(make_comparable(execution_path_verified=verified))
    assert decide_strategy_handoff(evidence) == NO_CANDIDATE


def test_handoff_names_only_verified_comparable_runs_in_order():
    evidence = make_evidence(
        make_comparable("hybrid"), {"name": "offload", "status": "oom"},
        make_comparable("offload", execution_path_verified=False), make_comparable("checkpoint"),
        {"name": "fifth", "status": "invalid", "execution_path_verified": True, "repeat_count": 5})
    assert decide_strategy_handoff(evidence)["eligible_candidates"] == ["hybrid", "checkpoint"]


@pytest.mark.parametrize("repeats", [None, True, "5", math.nan, math.inf, -5, 2.5, [5]])
def test_handoff_reads_an_odd_repeat_count_as_none_at_all(repeats):
    assert decide_strategy_handoff(make_evidence(make_comparable(repeat_count=repeats))) == RERUN
    assert decide_strategy_handoff(
        make_evidence(make_comparable(), baseline_repeats=repeats)) == RERUN


@pytest.mark.parametrize("minimum", [None, True, "3", math.nan, math.inf, [3]])
def test_handoff_never_meets_an_unusable_minimum(minimum):
    assert decide_strategy_handoff(make_evidence(make_comparable()), minimum) == RERUN


@pytest.mark.parametrize("minimum", [0, -3, 1])
def test_handoff_wants_at_least_one_repeat(minimum):
    zero = make_evidence(make_comparable(repeat_count=0))
    one = make_evidence(make_comparable(repeat_count=1), baseline_repeats=1)
    assert decide_strategy_handoff(zero, minimum) == RERUN
    assert decide_strategy_handoff(one, minimum)["status"] == "ready_for_budget_review"


@pytest.mark.parametrize("evidence", [None, {}, [], "x", {"baseline": None, "comparisons": None}])
def test_handoff_hands_over_nothing_from_odd_evidence(evidence):
    assert decide_strategy_handoff(evidence) == RERUN


@pytest.mark.parametrize("comparisons", [None, "x", [None, 3], [make_comparable(None)]])
def test_handoff_hands_over_nothing_from_odd_comparisons(comparisons):
    evidence = {"baseline": {"repeat_count": 5}, "comparisons": comparisons}
    assert decide_strategy_handoff(evidence) == NO_CANDIDATE


# --- properties ---

numbers = st.one_of(st.floats(), st.integers(), st.just(10**400), st.booleans(), st.none(),
                    st.text(max_size=3), st.lists(st.integers(), max_size=2),
                    st.fractions(), st.floats(width=32).map(np.float32))
statuses = st.one_of(st.sampled_from(["ok", "oom", "failed", "partial_oom"]), numbers)
KEYS = ["workload_id", "hardware_id", "repeat_count", "peak_memory_mb", "samples_per_s",
        "eval_loss", "execution_path_verified"]
odd_rows = st.fixed_dictionaries(
    {}, optional={"name": st.one_of(st.sampled_from(["checkpoint", "hybrid"]), numbers),
                  "status": statuses, **dict.fromkeys(KEYS, numbers)})
near_rows = st.builds(lambda changes: make_row(**changes), odd_rows)
rows = st.one_of(odd_rows, near_rows, numbers)
tables = st.one_of(st.lists(rows, max_size=4), st.tuples(rows), numbers)


@settings(max_examples=200)
@given(baseline=rows, candidates=tables, minimum=numbers)
def test_nothing_raises_changes_its_input_or_leaves_json(baseline, candidates, minimum):
    before = repr((baseline, candidates))
    validity = validate_strategy_experiment(baseline, candidates)
    evidence = build_strategy_pair_evidence(baseline, candidates)
    handoff = decide_strategy_handoff(evidence, minimum)
    json.dumps([validity, evidence, handoff], allow_nan=False)
    assert repr((baseline, candidates)) == before
    assert validity["is_valid"] is (validity["issues"] == [])
    counts = ("comparable_count", "oom_count", "failed_count", "invalid_count")
    assert sum(evidence[key] for key in counts) == len(evidence["comparisons"])


@settings(max_examples=200)
@given(changes=odd_rows, baseline_changes=odd_rows)
def test_only_an_ok_verified_repeated_run_is_ever_handed_over(changes, baseline_changes):
    row, baseline = make_row() | changes, make_baseline() | baseline_changes
    handoff = decide_strategy_handoff(build_strategy_pair_evidence(baseline, [row]))
    if handoff["eligible_candidates"]:
        assert row["status"] == "ok" and baseline["status"] == "ok"
        assert row["execution_path_verified"] is True
        assert row["repeat_count"] >= 3 and baseline["repeat_count"] >= 3
        assert math.isfinite(row["peak_memory_mb"]) and math.isfinite(row["eval_loss"])
        assert math.isfinite(row["samples_per_s"]) and baseline["samples_per_s"] > 0


@settings(max_examples=100)
@given(status=st.sampled_from(["oom", "failed", "partial_oom"]), changes=odd_rows)
def test_a_failed_run_never_gains(status, changes):
    row = make_row() | changes | {"status": status}
    evidence = build_strategy_pair_evidence(make_baseline(), [row])
    assert evidence["comparable_count"] == 0
    assert "memory_saving_mb" not in evidence["comparisons"][0]
    assert decide_strategy_handoff(evidence)["eligible_candidates"] == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (-2.5, -2.5), (np.float32(0.5), 0.5), (np.int8(3), 3.0), (Fraction(1, 4), 0.25),
     (2**60, 2.0**60), (np.bool_(True), None), (np.float64("nan"), None)]
    + [(value, None) for value in NOT_NUMBERS],
    ids=repr,
)
def test_finite_number_is_a_plain_float_or_none(value, expected):
    number = finite_number(value)
    assert number == expected
    assert number is None or type(number) is float


# --- pairs_from_record ---


def make_candidate(name, **changes):
    return {"name": name, "seq_len": 1024, "optimizer": "AdamW", "status": "ok",
            "step_time_ms": 500.0, "samples_per_s": 2.0, "loss": 1.0, "eval_loss": 1.1,
            "peak_memory_mb": 9000.0, "peak_reserved_mb": 9500.0, "successful_runs": 3,
            "oom_runs": 0, "failed_runs": 0, "runs": [], "execution_path_verified": True} | changes


def make_record(*candidates, **changes):
    return {"workload_id": "0123456789abcdef", "hardware_id": "fedcba9876543210",
            "config": {"seq_len": 1024, "repeats": 3}, "candidates": list(candidates)} | changes


def test_pairs_split_the_baseline_from_the_candidates():
    record = make_record(make_candidate("checkpoint", peak_memory_mb=7000.0),
                         make_candidate("baseline"), make_candidate("hybrid"))
    baseline, candidates = pairs_from_record(record)
    assert candidates[0] == {
        "name": "checkpoint", "status": "ok", "workload_id": "0123456789abcdef",
        "hardware_id": "fedcba9876543210", "repeat_count": 3, "execution_path_verified": True,
        "peak_memory_mb": 7000.0, "samples_per_s": 2.0, "eval_loss": 1.1}
    assert baseline["name"] == "baseline"
    assert [row["name"] for row in candidates] == ["checkpoint", "hybrid"]
    assert validate_strategy_experiment(baseline, candidates)["is_valid"] is True


@pytest.mark.parametrize(
    ("changes", "repeats"),
    [({"status": "oom", "successful_runs": 0, "oom_runs": 3}, 3),
     ({"status": "failed", "successful_runs": 1, "failed_runs": 2}, 3),
     ({"status": "partial_oom", "successful_runs": 2, "oom_runs": 1}, 2),
     ({"status": "ok", "successful_runs": 2}, 2)],
)
def test_pairs_count_successful_runs_and_planned_ones_of_failures(changes, repeats):
    record = make_record(make_candidate("baseline"), make_candidate("offload", **changes))
    assert pairs_from_record(record)[1][0]["repeat_count"] == repeats


def test_pairs_of_a_record_with_an_oom_row_are_valid():
    row = make_candidate("offload", status="oom", successful_runs=0, oom_runs=3, eval_loss=None,
                         peak_memory_mb=None, samples_per_s=None, execution_path_verified=None)
    baseline, candidates = pairs_from_record(make_record(make_candidate("baseline"), row))
    assert validate_strategy_experiment(baseline, candidates)["is_valid"] is True
    assert build_strategy_pair_evidence(baseline, candidates)["oom_count"] == 1


def test_pairs_read_ids_from_the_experiment_block():
    record = without(make_record(make_candidate("baseline")), "workload_id", "hardware_id")
    record["experiment"] = {"workload_id": "w", "hardware_id": "h"}
    baseline, _ = pairs_from_record(record)
    assert (baseline["workload_id"], baseline["hardware_id"]) == ("w", "h")


def test_pairs_never_invent_what_another_projects_record_lacks():
    record = json.loads((GOLDEN / "public_reference.json").read_text(encoding="utf-8"))
    baseline, candidates = pairs_from_record(record)
    assert baseline["workload_id"] is baseline["hardware_id"] is baseline["repeat_count"] is None
    assert validate_strategy_experiment(baseline, candidates)["issues"] == [
        f"{name}:{issue}" for name in ("checkpoint", "offload", "hybrid")
        for issue in ("workload_id_mismatch", "hardware_id_mismatch", "repeat_count_mismatch",
                      "execution_path_unverified")]


def test_pairs_give_a_row_without_status_no_status():
    record = make_record(make_candidate("baseline"), without(make_candidate("hybrid"), "status"))
    baseline, candidates = pairs_from_record(record)
    assert build_strategy_pair_evidence(baseline, candidates)["comparisons"] == [
        {"name": "hybrid", "status": "invalid"}]


def test_pairs_take_one_length_of_a_ladder():
    record = without(make_record(), "candidates") | {"length_records": [
        {"seq_len": 1024, "candidates": [make_candidate("baseline", peak_memory_mb=10.0)]},
        {"seq_len": 1280, "candidates": [make_candidate("baseline", peak_memory_mb=20.0),
                                         make_candidate("hybrid")]}]}
    baseline, candidates = pairs_from_record(record, seq_len=1280)
    assert baseline["peak_memory_mb"] == 20.0
    assert baseline["workload_id"] == "0123456789abcdef"
    assert [row["name"] for row in candidates] == ["hybrid"]


@pytest.mark.parametrize("seq_len", [None, 1536, "1280"])
def test_pairs_of_a_ladder_want_one_of_its_lengths(seq_len):
    record = {"length_records": [{"seq_len": 1024, "candidates": []}, {"seq_len": 1280}]}
    with pytest.raises(InputError, match=r"seq_len: must be one of the record's lengths \(1024, "
                                         r"1280\), got .*\. Choose one of them\."):
        pairs_from_record(record, seq_len=seq_len)


def test_pairs_of_g0_refuse_another_length_and_accept_its_own():
    record = make_record(make_candidate("baseline"))
    assert pairs_from_record(record, seq_len=1024)[1] == []
    with pytest.raises(InputError, match="seq_len: must be 1024, the only length of a g0 record"):
        pairs_from_record(record, seq_len=1280)


@pytest.mark.parametrize(
    ("record", "message"),
    [([], "record: must be a JSON object, got list"),
     ({}, "candidates: must be a list of rows, got NoneType"),
     (make_record(make_candidate("hybrid")), "must hold exactly one baseline row, got 0"),
     (make_record(make_candidate("baseline"), make_candidate("baseline")),
      "must hold exactly one baseline row, got 2")],
)
def test_pairs_refuse_a_record_without_one_baseline(record, message):
    with pytest.raises(RecordError, match=message):
        pairs_from_record(record)


def test_pairs_leave_the_record_as_it_was():
    record = make_record(make_candidate("baseline"), make_candidate("hybrid", eval_loss=math.inf))
    before = copy.deepcopy(record)
    assert pairs_from_record(record)[1][0]["eval_loss"] is None
    assert record == before
