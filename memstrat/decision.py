"""Summary and decision of G0: which strategy is worth adopting for full training.

Gates are in `gates`; the ladder of lengths is judged in `boundary`, whose two functions are also
reachable from here. Nothing is measured and no record is read or written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from memstrat.boundary import decide_memory_boundary, summarize_memory_boundary
from memstrat.errors import RecordError
from memstrat.evidence import finite_number, row_name, rows_of, whole_count
from memstrat.gates import (
    at_least,
    decision_of,
    default_quality_floor,
    evidence_of,
    judge_candidate,
    judge_candidates,
    min_memory_saving_mb,
    min_throughput_ratio,
    rows_without_path,
)

__all__ = [
    "decide_full_training_adoption",
    "decide_memory_boundary",
    "decide_memory_strategy_project",
    "default_quality_floor",
    "find_incomplete_candidates",
    "judge_candidate",
    "judge_candidates",
    "rows_without_path",
    "summarize_memory_boundary",
    "summarize_memory_strategy_candidates",
]


def summarize_memory_strategy_candidates(
    candidates: list[dict[str, Any]], budget: dict[str, Any], quality_floor: dict[str, Any] | None
) -> dict[str, Any]:
    """Which strategies are feasible on the fixed workload, and what the best saves (MiB).

    It decides nothing. Rows are counted once each: `measured_count` (status ok, every repeat,
    finite metrics), `oom_count`, and `invalid_count` for all others, `partial_oom` included.
    `quality_failed_count` counts among measured rows on a verified path, the baseline's included.

    Args:
        candidates: rows of a G0 record, the baseline among them.
        budget: see `judge_candidate`; the two minimums are copied into the summary.
        quality_floor: see `judge_candidate`.

    Returns:
        The counts, `feasible_names` (lowest peak first), `best_candidate` (the first feasible one
        beside the baseline that meets both minimums, else the first feasible), both peaks,
        `memory_saving_mb` and `throughput_ratio` (null without an ok, verified baseline), and
        `min_memory_saving_mb`, `min_throughput_ratio`.
    """
    limits = budget if isinstance(budget, dict) else {}
    verdicts = judge_candidates(candidates, budget, quality_floor)
    feasible = sorted((item for item in verdicts if item.feasible), key=lambda item: item.rank)
    worthwhile = [item for item in feasible if item.meets_minimums]
    best = (worthwhile or feasible or [None])[0]
    baseline = evidence_of("baseline", verdicts)
    measured_count = sum(item.measured for item in verdicts)
    oom_count = sum(item.status == "oom" for item in verdicts)
    return {
        "candidate_count": len(verdicts),
        "measured_count": measured_count,
        "oom_count": oom_count,
        "invalid_count": len(verdicts) - measured_count - oom_count,
        "feasible_count": len(feasible),
        "quality_failed_count": sum(
            item.is_evidence and item.quality == "failed" for item in verdicts),
        "feasible_names": [item.name for item in feasible],
        "best_candidate": best.name if best else None,
        "baseline_peak_memory_mb": baseline.peak_memory_mb if baseline else None,
        "best_peak_memory_mb": best.peak_memory_mb if best else None,
        "memory_saving_mb": best.memory_saving_mb if best else None,
        "throughput_ratio": best.throughput_ratio if best else None,
        "min_memory_saving_mb": min_memory_saving_mb(limits),
        "min_throughput_ratio": min_throughput_ratio(limits),
    }


def decide_memory_strategy_project(summary: dict[str, Any]) -> dict[str, Any]:
    """Accept, tune or reject, from a summary of G0; the first rule that matches.

    Says nothing about longer lengths or other devices. A figure that is missing from the summary
    or not finite meets no minimum, and without a best candidate nothing counts as feasible.

    Args:
        summary: what `summarize_memory_strategy_candidates` returned.

    Returns:
        `decision`, `reason`, `next_action`.
    """
    given = summary if isinstance(summary, dict) else {}
    best = given.get("best_candidate")
    saves = at_least(finite_number(given.get("memory_saving_mb")), min_memory_saving_mb(given))
    keeps = at_least(finite_number(given.get("throughput_ratio")), min_throughput_ratio(given))
    if not whole_count(given.get("feasible_count")) or not isinstance(best, str) or not best:
        return decision_of("reject", "no_strategy_meets_budget_and_quality",
                           "rework_checkpoint_or_offload_scope")
    if finite_number(given.get("baseline_peak_memory_mb")) is None:
        return decision_of("tune", "baseline_not_measured",
                           "rerun_at_a_shorter_length_or_on_a_larger_device")
    if best != "baseline" and saves and keeps:
        return decision_of("accept", "strategy_is_best_feasible_option", "promote_to_training_run")
    if whole_count(given.get("quality_failed_count")):
        return decision_of("tune", "strategy_needs_quality_recovery",
                           "adjust_checkpoint_granularity_or_offload_scope")
    if best == "baseline":
        return decision_of("tune", "baseline_still_best_under_current_budget",
                           "revisit_strategy_mix")
    if not saves:
        return decision_of("tune", "memory_saving_below_meaningful_threshold",
                           "test_pressure_or_offload_scope")
    return decision_of("tune", "throughput_loss_exceeds_budget",
                       "reduce_checkpoint_or_offload_scope")


def decide_full_training_adoption(
    candidates: list[dict[str, Any]],
    budget: dict[str, Any],
    quality_floor: dict[str, Any] | None,
    repeats: int,
    strategies: Iterable[str] = (),
) -> dict[str, Any]:
    """The decision that a G0 record supports; an incomplete one is measured again first.

    Args:
        candidates: rows of a G0 record.
        budget: see `judge_candidate`.
        quality_floor: see `judge_candidate`.
        repeats: planned repeats of each strategy.
        strategies: names that must be there.

    Returns:
        `decision`, `reason`, `next_action`; with `incomplete_candidates` where there are any.

    Raises:
        RecordError: a row with status ok does not say whether its path was verified.
    """
    silent = rows_without_path(candidates)
    if silent:
        raise RecordError(
            f"execution_path_verified: must be recorded for every ok candidate, got none for "
            f"{', '.join(silent)}. The record can be shown, not decided; measure with g0."
        )
    incomplete = find_incomplete_candidates(candidates, repeats, strategies)
    if incomplete:
        decision = decision_of("tune", "g0_incomplete_repeats",
                               "rerun_g0_with_a_new_label_after_freeing_gpu_memory")
        return {**decision, "incomplete_candidates": incomplete}
    return decide_memory_strategy_project(
        summarize_memory_strategy_candidates(candidates, budget, quality_floor))


def find_incomplete_candidates(
    candidates: list[dict[str, Any]], repeats: int, strategies: Iterable[str] = ()
) -> list[str]:
    """Names with fewer successful runs than repeats, out-of-memory ones included, then absent ones.

    Repeats that are no whole number above 0 leave every candidate incomplete.
    """
    planned = whole_count(repeats)
    rows = [row for row in rows_of(candidates) if row_name(row) is not None]
    incomplete = [str(row_name(row)) for row in rows
                  if not planned or row.get("status") != "ok"
                  or whole_count(row.get("successful_runs")) < planned]
    absent = [name for name in strategies if name not in {row_name(row) for row in rows}]
    return list(dict.fromkeys([*incomplete, *absent]))
