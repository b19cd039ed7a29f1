"""From raw runs to candidates: everything derived, so that it can be derived again by an audit.

Not covered: budgets and decisions (see `decision`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import median
from typing import Any

import numpy as np

from memstrat.records import Candidate, Run, Stability

# How far the first step's loss or gradient norm may stand from the baseline's, relative. All four
# strategies are bit-equal on a CPU in fp32; atomics on CUDA move the last digits. A wrong gradient,
# dropout drawn anew or a missing synchronisation is orders of magnitude above this.
STEP1_RTOL = {"float32": 1e-4, "torch.bfloat16": 1e-2}


def compare_first_steps(runs: Iterable[Run], amp_dtype: str | None = None) -> list[Run]:
    """Runs with their first step's distance from the first ok baseline run of the same length.

    A run that differs by more than rounding becomes `failed` with that reason; its raw values stay.
    Without an ok baseline nothing can be compared and the runs are returned as they are.
    """
    runs = list(runs)
    rtol = STEP1_RTOL[amp_dtype or "float32"]
    references = {run.seq_len: run for run in sorted(runs, key=lambda run: -run.repeat)
                  if run.name == "baseline" and run.status == "ok"}
    return [_compare(run, references[run.seq_len], rtol) if run.seq_len in references else run for run in runs]


def aggregate(runs: Iterable[Run], micro_batch: int) -> list[Candidate]:
    """One candidate per strategy and length, in order of first appearance. `micro_batch` in samples a step."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.name, run.seq_len), []).append(run)
    return [_candidate(sorted(group, key=lambda run: run.repeat), micro_batch) for group in groups.values()]


def candidate_status(num_ok: int, num_oom: int, num_failed: int) -> str:
    """Status of a candidate from the counts of its runs (contract, section 3)."""
    if num_ok and not (num_oom or num_failed):
        return "ok"
    if num_ok == 0 and num_oom:
        return "oom"
    if num_ok and not num_failed:
        return "partial_oom"
    return "failed"


def summarize_repeats(candidates: Iterable[Candidate]) -> dict[str, dict[str, Any]]:
    """Throughput against the baseline within each block, its median and a 95 % bootstrap interval."""
    candidates = list(candidates)
    baselines = {(run.seq_len, run.repeat): run for candidate in candidates if candidate.name == "baseline"
                 for run in candidate.runs if run.status == "ok"}
    summary = {}
    for candidate in candidates:
        ratios = [run.samples_per_s / baselines[run.seq_len, run.repeat].samples_per_s for run in candidate.runs
                  if run.status == "ok" and (run.seq_len, run.repeat) in baselines]
        summary[candidate.name] = {
            "successful_runs": candidate.successful_runs,
            "block_throughput_ratios": ratios,
            "throughput_ratio_median": median(ratios) if ratios else None,
            "throughput_ratio_interval_95": bootstrap_interval(ratios),
        }
    return summary


def bootstrap_interval(values: list[float], num_resamples: int = 2000) -> list[float] | None:
    """Percentile bootstrap of the median, 95 %; None below two values. Seeded: same values, same answer."""
    if len(values) < 2:
        return None
    draws = np.random.default_rng(0).choice(np.asarray(values), size=(num_resamples, len(values)))
    return [float(bound) for bound in np.percentile(np.median(draws, axis=1), [2.5, 97.5])]


def standard_metrics(candidates: Iterable[Candidate]) -> dict[str, dict[str, Any]]:
    """The seven figures that projects of the series share, per strategy."""
    return {candidate.name: {
        "step_time_ms": candidate.step_time_ms, "throughput_samples_per_s": candidate.samples_per_s,
        "peak_memory_mb": candidate.peak_memory_mb, "peak_reserved_mb": candidate.peak_reserved_mb,
        "loss": candidate.loss, "eval_loss": candidate.eval_loss, "status": candidate.status,
    } for candidate in candidates}


def _compare(run: Run, reference: Run, rtol: float) -> Run:
    if run.status != "ok":
        return run
    changes: dict[str, Any] = {}
    for field in ("step1_loss", "step1_grad_norm"):
        ours, theirs = getattr(run, field), getattr(reference, field)
        if ours is None or theirs is None:
            changes |= {"status": "failed", "reason": f"{field} must be a finite number, got {ours}"}
            continue
        changes[f"{field}_difference"] = abs(ours - theirs)
        if not math.isclose(ours, theirs, rel_tol=rtol):
            changes |= {"status": "failed", "reason": f"{field} must equal the baseline's {theirs:.6g} within rounding "
                                                      f"({rtol:g}), got {ours:.6g}: this is not the same training step"}
    return run.model_copy(update=changes)


def _candidate(runs: list[Run], micro_batch: int) -> Candidate:
    good = [run for run in runs if run.status == "ok"]
    num_oom = sum(run.status == "oom" for run in runs)
    num_failed = len(runs) - len(good) - num_oom
    first = runs[0]
    values: dict[str, Any] = {}
    if good:
        step_time = median(run.step_time_ms for run in good)
        values = {
            "step_time_ms": step_time, "samples_per_s": micro_batch * 1000 / step_time,
            "loss": median(run.loss for run in good), "eval_loss": median(run.eval_loss for run in good),
            "peak_memory_mb": max(run.peak_memory_mb for run in good),
            "peak_reserved_mb": _max_known(run.peak_reserved_mb for run in good),
            "execution_path_verified": all(run.execution_path_verified is True for run in good),
            "step1_loss_difference": _max_known(run.step1_loss_difference for run in good),
            "step1_grad_norm_difference": _max_known(run.step1_grad_norm_difference for run in good),
            "stability": Stability(
                step_time_range_ms=_range(run.step_time_ms for run in good),
                throughput_range_samples_per_s=_range(run.samples_per_s for run in good),
                peak_memory_range_mb=_range(run.peak_memory_mb for run in good)),
        }
    return Candidate(name=first.name, seq_len=first.seq_len, optimizer=first.optimizer,
                     status=candidate_status(len(good), num_oom, num_failed), successful_runs=len(good),
                     oom_runs=num_oom, failed_runs=num_failed, runs=runs, **values)


def _range(values: Iterable[float]) -> tuple[float, float]:
    values = list(values)
    return min(values), max(values)


def _max_known(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
