"""Each gate on its own, at, just within and just beyond its limit."""

from __future__ import annotations

import math

import pytest

from memstrat.errors import InputError
from memstrat.gates import default_quality_floor, judge_candidate, judge_candidates, path_state

BUDGET = {"memory_cap_mb": 10000.0, "min_samples_per_s": 1.0, "min_memory_saving_mb": 512.0,
          "min_throughput_ratio": 0.70}
FLOOR = {"max_val_loss": 1.10, "source": "given"}


def make_row(name="checkpoint", **changes):
    return {"name": name, "status": "ok", "successful_runs": 3, "oom_runs": 0, "failed_runs": 0,
            "execution_path_verified": True, "peak_memory_mb": 8000.0, "samples_per_s": 1.8,
            "eval_loss": 1.05} | changes


def make_baseline(**changes):
    return make_row("baseline", peak_memory_mb=9000.0, samples_per_s=2.0) | changes


def judge(row, budget=BUDGET, floor=FLOOR, baseline=None):
    return judge_candidate(row, budget, floor, baseline or make_baseline())


def test_judge_passes_every_gate_of_a_worthwhile_candidate():
    verdict = judge(make_row())
    assert dict(verdict.gates) == dict.fromkeys(
        ["path_unverified", "runs_incomplete", "memory_cap", "throughput_floor", "memory_saving",
         "throughput", "quality"], True)
    assert verdict.feasible and verdict.meets_minimums and verdict.first_failed_gate is None
    assert (verdict.memory_saving_mb, verdict.throughput_ratio) == (1000.0, 0.9)
    assert (verdict.path, verdict.quality) == ("verified", "passed")


@pytest.mark.parametrize(
    ("changes", "gate"),
    [
        ({"execution_path_verified": False}, "path_unverified"),
        ({"status": "partial_oom"}, "runs_incomplete"),
        ({"peak_memory_mb": 10000.01}, "memory_cap"),
        ({"samples_per_s": 0.99}, "throughput_floor"),
        ({"peak_memory_mb": 8488.01}, "memory_saving"),
        ({"samples_per_s": 1.39}, "throughput"),
        ({"eval_loss": 1.1001}, "quality"),
    ],
)
def test_judge_names_the_gate_that_fails(changes, gate):
    verdict = judge(make_row(**changes))
    assert verdict.first_failed_gate == gate
    assert verdict.gates[gate] is False


def test_judge_names_the_first_of_several_failed_gates_in_order():
    row = make_row(peak_memory_mb=10001.0, samples_per_s=0.1, eval_loss=9.0)
    verdict = judge(row)
    assert [gate for gate, passed in verdict.gates.items() if passed is False] == [
        "memory_cap", "throughput_floor", "memory_saving", "throughput", "quality"]
    assert judge(row | {"execution_path_verified": None}).first_failed_gate == "path_unverified"


@pytest.mark.parametrize(
    "changes",
    [{"peak_memory_mb": 10000.0}, {"samples_per_s": 1.0}, {"eval_loss": 1.10}],
)
def test_judge_lets_a_row_exactly_at_a_limit_be_feasible(changes):
    assert judge(make_row(**changes)).feasible


@pytest.mark.parametrize(
    ("baseline_mb", "candidate_mb"),
    [(9000.0, 8488.0), (1024, 512), (9782.74, 9270.74), (512.3, 0.3)],
)
def test_judge_accepts_a_saving_exactly_at_the_minimum(baseline_mb, candidate_mb):
    baseline = make_baseline(peak_memory_mb=baseline_mb)
    assert judge(make_row(peak_memory_mb=candidate_mb), baseline=baseline).gates["memory_saving"]


@pytest.mark.parametrize(
    ("base", "rate"), [(8.0, 5.6), (10, 7), (3.0, 2.1), (1.1, 0.77), (0.3, 0.21), (2.3, 1.61)])
def test_judge_accepts_a_ratio_exactly_at_the_minimum(base, rate):
    verdict = judge(make_row(samples_per_s=rate), baseline=make_baseline(samples_per_s=base))
    assert verdict.gates["throughput"] is True


def test_judge_forgives_rounding_and_nothing_a_byte_could_hold():
    one_byte_mb = 2.0**-20
    row = make_row(peak_memory_mb=8488.0 + one_byte_mb)
    assert judge(row).gates["memory_saving"] is False
    assert judge(make_row(samples_per_s=1.4 * (1 - 1e-6))).gates["throughput"] is False


@pytest.mark.parametrize("value", [False, 1, "True", "verified", [True]])
def test_path_is_verified_only_by_exactly_true(value):
    assert path_state({"execution_path_verified": value}) == "unverified"
    assert not judge(make_row(execution_path_verified=value)).feasible


@pytest.mark.parametrize("row", [{}, {"execution_path_verified": None}])
def test_path_that_a_row_does_not_mention_is_not_recorded(row):
    assert path_state(row) == "not recorded"


@pytest.mark.parametrize("status", ["oom", "failed"])
def test_judge_asks_no_path_of_a_failure(status):
    verdict = judge(make_row(status=status, execution_path_verified=False))
    assert verdict.gates["path_unverified"] is None
    assert verdict.first_failed_gate == "runs_incomplete"
    assert not verdict.feasible and not verdict.measured
    assert verdict.peak_memory_mb is None and verdict.memory_saving_mb is None


@pytest.mark.parametrize("status", ["partial_oom", "OK", None, True, ["ok"]])
def test_judge_measures_only_status_ok(status):
    assert not judge(make_row(status=status)).measured


def test_judge_reads_no_status_as_unproven():
    row = make_row()
    del row["status"]
    assert not judge(row).measured


@pytest.mark.parametrize(
    "changes",
    [{"successful_runs": 2, "oom_runs": 1}, {"failed_runs": 1}, {"oom_runs": 1},
     {"successful_runs": 2, "runs": [{}, {}, {}]}, {"successful_runs": True, "runs": [{}]},
     {"successful_runs": None, "runs": [{}, {}, {}]}],
)
def test_judge_doubts_an_ok_row_whose_runs_say_otherwise(changes):
    verdict = judge(make_row(**changes))
    assert not verdict.measured
    assert verdict.first_failed_gate == "runs_incomplete"


@pytest.mark.parametrize("metric", ["peak_memory_mb", "samples_per_s", "eval_loss"])
@pytest.mark.parametrize("value", [None, math.nan, math.inf, True, "8000", 10**400], ids=repr)
def test_judge_measures_no_row_with_a_metric_that_is_no_finite_number(metric, value):
    assert not judge(make_row(**{metric: value})).measured


@pytest.mark.parametrize(
    "changes", [{"peak_memory_mb": 0}, {"peak_memory_mb": -1.0}, {"samples_per_s": 0},
                {"loss": math.nan}, {"step_time_ms": math.inf}])
def test_judge_measures_no_row_with_an_impossible_figure(changes):
    assert not judge(make_row(**changes)).measured


@pytest.mark.parametrize("cap", [{}, {"memory_cap_mb": None}, {"memory_cap_mb": math.inf},
                                 {"memory_cap_mb": "big"}, {"memory_cap_mb": True}, None])
def test_judge_finds_nothing_within_a_cap_that_is_not_there(cap):
    verdict = judge(make_row(), budget=cap)
    assert verdict.gates["memory_cap"] is False and not verdict.feasible


def test_judge_has_defaults_for_the_other_limits():
    budget = {"memory_cap_mb": 10000.0}
    assert judge(make_row(peak_memory_mb=8488.0, samples_per_s=1.4), budget).meets_minimums
    assert not judge(make_row(peak_memory_mb=8488.1), budget).meets_minimums
    assert not judge(make_row(samples_per_s=1.39), budget).meets_minimums
    assert judge(make_row(samples_per_s=1e-9), budget).gates["throughput_floor"] is True


@pytest.mark.parametrize(
    ("key", "gate"), [("min_samples_per_s", "throughput_floor"),
                      ("min_memory_saving_mb", "memory_saving"),
                      ("min_throughput_ratio", "throughput")])
@pytest.mark.parametrize("value", [math.nan, -math.inf, "0", False])
def test_judge_never_meets_an_unusable_limit(key, gate, value):
    assert judge(make_row(), BUDGET | {key: value}).gates[gate] is False


@pytest.mark.parametrize("floor", [None, {}, {"max_val_loss": None, "source": "not_judged"}])
def test_judge_leaves_quality_open_without_a_floor(floor):
    verdict = judge(make_row(eval_loss=99.0), floor=floor)
    assert verdict.quality == "not_judged" and verdict.gates["quality"] is None
    assert verdict.feasible and verdict.first_failed_gate is None


@pytest.mark.parametrize("floor", [{"max_val_loss": math.inf}, {"max_val_loss": "x"}, 9.0])
def test_judge_fails_quality_against_an_unusable_floor(floor):
    assert judge(make_row(), floor=floor).quality == "failed"


def test_judge_asks_no_gain_of_the_baseline():
    verdict = judge(make_baseline())
    assert (verdict.memory_saving_mb, verdict.throughput_ratio) == (0.0, 1.0)
    assert verdict.gates["memory_saving"] is None and not verdict.meets_minimums
    free = judge(make_baseline(), BUDGET | {"min_memory_saving_mb": 0.0})
    assert not free.meets_minimums


@pytest.mark.parametrize(
    "changes", [{"status": "oom"}, {"execution_path_verified": False}, {"peak_memory_mb": math.nan},
                {"execution_path_verified": None}, {"samples_per_s": 0}])
def test_judge_measures_no_gain_against_a_baseline_that_is_no_evidence(changes):
    verdict = judge(make_row(), baseline=make_baseline(**changes))
    assert verdict.memory_saving_mb is verdict.throughput_ratio is None
    assert verdict.feasible and not verdict.meets_minimums


def test_judge_candidates_doubts_every_row_of_a_repeated_name():
    rows = [make_baseline(), make_row(status="failed"), make_row(), make_row("hybrid")]
    verdicts = judge_candidates(rows, BUDGET, FLOOR)
    assert [item.status for item in verdicts] == ["ok", "duplicate_name", "duplicate_name", "ok"]
    assert [item.feasible for item in verdicts] == [True, False, False, True]


def test_judge_candidates_expects_of_each_row_the_repeats_of_the_others():
    rows = [make_baseline(), make_row(successful_runs=2), make_row("hybrid")]
    assert [item.measured for item in judge_candidates(rows, BUDGET, FLOOR)] == [True, False, True]


def test_judge_candidates_asks_no_repeats_where_no_row_records_them():
    rows = [{key: value for key, value in row.items() if not key.endswith("_runs")}
            for row in (make_baseline(), make_row())]
    assert [item.measured for item in judge_candidates(rows, BUDGET, FLOOR)] == [True, True]


@pytest.mark.parametrize("rows", [None, "x", [None], [{}], {"baseline": {}}])
def test_judge_candidates_finds_no_evidence_in_what_are_no_rows(rows):
    assert [item.is_evidence for item in judge_candidates(rows, BUDGET, FLOOR)] == [False]


def test_floor_that_is_given_stands():
    assert default_quality_floor(make_baseline(), 1.15) == {"max_val_loss": 1.15,
                                                            "source": "given"}


def test_floor_is_else_two_percent_above_the_baseline():
    floor = default_quality_floor(make_baseline(eval_loss=12.5))
    assert floor == {"max_val_loss": 12.75, "source": "baseline_eval_loss"}


@pytest.mark.parametrize(
    "baseline", [None, {}, make_baseline(status="oom"), make_baseline(status="partial_oom"),
                 make_baseline(eval_loss=math.nan), make_baseline(eval_loss=1.79e308)])
def test_floor_is_null_without_an_ok_baseline(baseline):
    assert default_quality_floor(baseline) == {"max_val_loss": None, "source": "not_judged"}


@pytest.mark.parametrize("given", [math.nan, math.inf, "1.15", True])
def test_floor_that_is_no_number_is_refused(given):
    with pytest.raises(InputError, match="max_val_loss: must be a finite number, got "):
        default_quality_floor(make_baseline(), given)
