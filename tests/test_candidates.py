from __future__ import annotations

import pytest

from memstrat.candidates import (
    aggregate,
    bootstrap_interval,
    candidate_status,
    compare_first_steps,
    standard_metrics,
    summarize_repeats,
)
from memstrat.records import Run


def make_run(name="baseline", repeat=0, **overrides) -> Run:
    values = dict(name=name, repeat=repeat, seq_len=256, optimizer="AdamW", status="ok", step_times_ms=[100.0],
                  step_time_ms=100.0, samples_per_s=10.0, loss=2.0, eval_loss=2.5, peak_memory_mb=30.0,
                  step1_loss=7.5, step1_grad_norm=1.25, execution_path_verified=True)
    return Run(**(values | overrides))


def make_oom(name="offload", repeat=0) -> Run:
    return Run(name=name, repeat=repeat, seq_len=256, optimizer="AdamW", status="oom", reason="out of memory")


@pytest.mark.parametrize(("counts", "status"), [
    ((3, 0, 0), "ok"), ((0, 3, 0), "oom"), ((0, 1, 2), "oom"), ((0, 0, 3), "failed"),
    ((2, 1, 0), "partial_oom"), ((2, 0, 1), "failed"), ((1, 1, 1), "failed"),
])
def test_candidate_status_follows_the_run_counts(counts, status):
    assert candidate_status(*counts) == status


def test_aggregate_takes_medians_of_times_and_the_highest_peak():
    runs = [make_run(repeat=index, step_time_ms=time, samples_per_s=1000 / time, peak_memory_mb=peak, eval_loss=loss)
            for index, (time, peak, loss) in enumerate([(100.0, 30.0, 2.5), (125.0, 31.0, 2.7), (80.0, 30.5, 2.6)])]
    (candidate,) = aggregate(runs, 1)
    assert (candidate.step_time_ms, candidate.samples_per_s) == (100.0, 10.0)
    assert (candidate.peak_memory_mb, candidate.eval_loss) == (31.0, 2.6)
    assert candidate.stability.step_time_range_ms == (80.0, 125.0)
    assert candidate.stability.peak_memory_range_mb == (30.0, 31.0)
    assert candidate.peak_reserved_mb is None


def test_aggregate_throughput_follows_from_the_candidates_own_step_time():
    runs = [make_run(repeat=0, step_time_ms=100.0, samples_per_s=20.0),
            make_run(repeat=1, step_time_ms=300.0, samples_per_s=2000 / 300)]
    (candidate,) = aggregate(runs, 2)
    assert candidate.step_time_ms == 200.0
    assert candidate.samples_per_s == 10.0


def test_aggregate_keeps_oom_rows_without_metrics():
    (candidate,) = aggregate([make_oom(repeat=index) for index in range(3)], 1)
    assert (candidate.status, candidate.oom_runs, candidate.successful_runs) == ("oom", 3, 0)
    assert candidate.peak_memory_mb is None and candidate.execution_path_verified is None


def test_aggregate_path_is_verified_only_if_every_successful_run_is():
    runs = [make_run("offload", 0), make_run("offload", 1, execution_path_verified=False)]
    assert aggregate(runs, 1)[0].execution_path_verified is False


def test_aggregate_metrics_come_from_successful_runs_alone():
    runs = [make_run(repeat=0), make_run(repeat=1, status="failed", peak_memory_mb=999.0, step_time_ms=1.0)]
    (candidate,) = aggregate(runs, 1)
    assert (candidate.status, candidate.peak_memory_mb, candidate.step_time_ms) == ("failed", 30.0, 100.0)


def test_compare_first_steps_fails_another_gradient():
    runs = compare_first_steps([make_run(), make_run("checkpoint", step1_grad_norm=1.26)])
    assert runs[0].status == "ok"
    assert runs[1].status == "failed"
    assert "step1_grad_norm must equal the baseline's 1.25" in runs[1].reason
    assert runs[1].step1_loss_difference == 0.0


def test_compare_first_steps_allows_rounding_and_records_it():
    runs = compare_first_steps([make_run(), make_run("checkpoint", step1_loss=7.5000002)])
    assert runs[1].status == "ok"
    assert runs[1].step1_loss_difference == pytest.approx(2e-7, rel=1e-3)


def test_compare_first_steps_uses_the_baseline_of_the_same_length():
    runs = compare_first_steps([make_run(), make_run("checkpoint", seq_len=512, step1_loss=9.0)])
    assert runs[1].status == "ok" and runs[1].step1_loss_difference is None


def test_compare_first_steps_never_judges_by_a_failed_baseline():
    runs = compare_first_steps([make_run(status="failed", step1_loss=1.0), make_run(repeat=1), make_run("checkpoint")])
    assert [run.status for run in runs] == ["failed", "ok", "ok"]


def test_summarize_repeats_pairs_within_the_block():
    candidates = aggregate([
        make_run(repeat=0, samples_per_s=10.0), make_run(repeat=1, samples_per_s=8.0),
        make_run(repeat=2, status="failed"),
        make_run("checkpoint", 0, samples_per_s=9.0), make_run("checkpoint", 1, samples_per_s=6.0),
        make_run("checkpoint", 2, samples_per_s=5.0)], 1)
    summary = summarize_repeats(candidates)
    assert summary["checkpoint"]["block_throughput_ratios"] == [0.9, 0.75]
    assert summary["checkpoint"]["throughput_ratio_median"] == pytest.approx(0.825)
    assert summary["checkpoint"]["throughput_ratio_interval_95"] == [0.75, 0.9]


def test_bootstrap_interval_needs_two_values():
    assert bootstrap_interval([1.0]) is None


def test_standard_metrics_names_the_seven_shared_figures():
    metrics = standard_metrics(aggregate([make_run()], 1))
    assert metrics == {"baseline": {"step_time_ms": 100.0, "throughput_samples_per_s": 10.0, "peak_memory_mb": 30.0,
                                    "peak_reserved_mb": None, "loss": 2.0, "eval_loss": 2.5, "status": "ok"}}
