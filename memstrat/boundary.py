"""Summary and decision of G1: how activations grow with length, and which strategy holds them.

G1 runs SGD without momentum, so what it shows holds for activation memory alone; it can support a
mechanism, never the adoption of a strategy for full training. Throughput is judged as a ratio to
the same length's baseline, not against the budget's samples per second.
"""

from __future__ import annotations

from typing import Any

from memstrat.evidence import finite_number, rows_of, whole_count
from memstrat.gates import (
    FLOOR_FROM_BASELINE,
    Verdict,
    decision_of,
    default_quality_floor,
    evidence_of,
    judge_candidates,
)

BOUNDARY_GATES = ("path_unverified", "runs_incomplete", "memory_cap", "memory_saving", "throughput",
                  "quality")
COMPLETED, SAFETY_BOUNDARY, BLOCKED = ("completed", "completed_with_safety_boundary", "blocked")
NO_BASELINE = "baseline_not_measured"  # why nothing is eligible at a length without one
REFERENCE = "reference"  # why the baseline itself is never eligible
NEXT_ACTIONS = {
    "path_unverified": "repair_strategy_execution",
    "runs_incomplete": "rerun_g1_with_a_new_label_after_freeing_gpu_memory",
    "memory_cap": "test_pressure_or_offload_scope",
    "memory_saving": "test_pressure_or_offload_scope",
    "throughput": "reduce_checkpoint_or_offload_scope",
    "quality": "adjust_checkpoint_granularity_or_offload_scope",
}


def summarize_memory_boundary(
    length_records: list[dict[str, Any]],
    budget: dict[str, Any],
    quality_floor: dict[str, Any] | None,
    status: str | None = None,
) -> dict[str, Any]:
    """What the ladder shows, length by length and strategy by strategy (MiB).

    It decides nothing and cannot know why the ladder stopped: that is in the record's admission.

    Args:
        length_records: `seq_len` and `candidates` of each length. One without a whole length above
            0 is left out; two of one length are joined, which puts each name they share in doubt.
        budget: see `gates.judge_candidate`; `min_samples_per_s` is not asked.
        quality_floor: a floor that was given holds at every length; else each length has its own,
            from its own baseline.
        status: the G1 record's. Without it: `blocked` if the base length has no ok baseline,
            `completed_with_safety_boundary` if the last length has none, else `completed`.

    Returns:
        `status`, `tested_seq_lens`, `per_length` (a list; `strategies` by name, each with
        `eligible` and, where it is not, the first failed gate as `reason`), `last_safe_seq_len` by
        strategy (up to there every tested length ran, path verified; null if none),
        `peak_growth_mb_per_1024_tokens` by strategy (between the first and the last safe length;
        null without two), `eligible_strategies` (at the baseline's last safe length, lowest peak
        first), `best_placed_strategy` there (the one that passes most gates in their order) with
        its `best_placed_failed_gate`, and `ran_beyond_baseline` (names that ran at a length where
        the baseline did not).
    """
    ladder = _judge_ladder(length_records, budget, quality_floor)
    names = list(dict.fromkeys(
        item.name for _, verdicts in ladder.values() for item in verdicts if item.name))
    safe = {name: _safe_peaks(ladder, name) for name in names}
    baseline_ok = list(safe.get("baseline", {}))
    longest = ladder[baseline_ok[-1]][1] if baseline_ok else []
    # Furthest through the gates first; among equals the lowest peak.
    placed = sorted((item for item in longest if item.name and item.name != "baseline"),
                    key=lambda item: (-_num_gates_passed(item), item.rank))
    eligible = [str(item.name) for item in placed if _reason(item, longest) is None]
    best = placed[0] if placed else None
    return {
        "status": _status(status, list(ladder), baseline_ok),
        "tested_seq_lens": list(ladder),
        "per_length": [
            {"seq_len": seq_len, "quality_floor": floor,
             "strategies": {item.name: _describe(item, verdicts)
                            for item in verdicts if item.name}}
            for seq_len, (floor, verdicts) in ladder.items()
        ],
        "last_safe_seq_len": {name: max(peaks, default=None) for name, peaks in safe.items()},
        "peak_growth_mb_per_1024_tokens": {name: _growth(peaks) for name, peaks in safe.items()},
        "eligible_strategies": eligible,
        "best_placed_strategy": best.name if best else None,
        "best_placed_failed_gate": _reason(best, longest) if best else None,
        "ran_beyond_baseline": [
            name for name in names
            if any(evidence_of(name, verdicts) and not evidence_of("baseline", verdicts)
                   for _, verdicts in ladder.values())
        ],
    }


def decide_memory_boundary(summary: dict[str, Any]) -> dict[str, Any]:
    """Blocked, measure, accept for the activation scope, or tune; the first rule that matches.

    It never says plain `accept`. What is missing from the summary counts as not measured.

    Args:
        summary: what `summarize_memory_boundary` returned.

    Returns:
        `decision`, `reason`, `next_action`; for tune the reason is the first failed gate of the
        best-placed `strategy`, which is named.
    """
    given = summary if isinstance(summary, dict) else {}
    if given.get("status") not in (COMPLETED, SAFETY_BOUNDARY):
        return decision_of("blocked", "safety_headroom_guard",
                           "keep_last_safe_length_or_use_a_dedicated_gpu")
    if _num_baseline_lengths(given) < 2:
        return decision_of("measure", "too_few_lengths", "extend_the_ladder_safely")
    if given.get("eligible_strategies"):
        return decision_of("accept_for_activation_memory_scope",
                           "strategy_passes_at_longest_length", "send_as_mechanism_evidence")
    gate = given.get("best_placed_failed_gate")
    gate = gate if isinstance(gate, str) and gate in NEXT_ACTIONS else "runs_incomplete"
    return {**decision_of("tune", gate, NEXT_ACTIONS[gate]),
            "strategy": given.get("best_placed_strategy")}


def _judge_ladder(
    length_records: Any, budget: dict[str, Any], quality_floor: dict[str, Any] | None
) -> dict[int, tuple[dict[str, Any] | None, list[Verdict]]]:
    """Floor and verdicts by length, shortest first."""
    rows_by_length: dict[int, list[dict[str, Any]]] = {}
    for record in rows_of(length_records):
        seq_len = whole_count(record.get("seq_len"))
        if seq_len:
            rows_by_length.setdefault(seq_len, []).extend(rows_of(record.get("candidates")))
    ladder = {}
    for seq_len in sorted(rows_by_length):
        rows = rows_by_length[seq_len]
        floor = quality_floor
        if _is_derived(quality_floor):
            baseline = evidence_of("baseline", judge_candidates(rows, budget, None))
            floor = default_quality_floor(
                {"status": "ok", "eval_loss": baseline.eval_loss} if baseline else None)
        ladder[seq_len] = (floor, judge_candidates(rows, budget, floor))
    return ladder


def _is_derived(quality_floor: Any) -> bool:
    """True if the floor was not given but came, or would come, from a baseline."""
    if quality_floor is None:
        return True
    if not isinstance(quality_floor, dict):
        return False
    derived = quality_floor.get("source") == FLOOR_FROM_BASELINE
    return derived or quality_floor.get("max_val_loss") is None


def _status(status: Any, tested: list[int], baseline_ok: list[int]) -> str:
    if not tested or tested[0] not in baseline_ok or status == BLOCKED:
        return BLOCKED
    if status in (COMPLETED, SAFETY_BOUNDARY):
        return status
    return COMPLETED if tested[-1] in baseline_ok else SAFETY_BOUNDARY


def _num_baseline_lengths(summary: dict[str, Any]) -> int:
    """Tested lengths up to the baseline's last safe one: it was ok at each of them."""
    last_safe, tested = summary.get("last_safe_seq_len"), summary.get("tested_seq_lens")
    if not isinstance(last_safe, dict) or not isinstance(tested, (list, tuple)):
        return 0
    longest = whole_count(last_safe.get("baseline"))
    return sum(0 < whole_count(seq_len) <= longest for seq_len in tested)


def _reason(item: Verdict, verdicts: list[Verdict]) -> str | None:
    """Why a strategy is not eligible at its length, or None if it is."""
    if item.name == "baseline":
        return REFERENCE
    failed = next((gate for gate in BOUNDARY_GATES if item.gates[gate] is False), None)
    return failed or (None if evidence_of("baseline", verdicts) else NO_BASELINE)


def _num_gates_passed(item: Verdict) -> int:
    """Gates passed, in order, before the first that failed."""
    failed = [index for index, gate in enumerate(BOUNDARY_GATES) if item.gates[gate] is False]
    return failed[0] if failed else len(BOUNDARY_GATES)


def _describe(item: Verdict, verdicts: list[Verdict]) -> dict[str, Any]:
    reason = _reason(item, verdicts)
    return {
        "status": item.status, "path": item.path, "peak_memory_mb": item.peak_memory_mb,
        "memory_saving_mb": item.memory_saving_mb, "throughput_ratio": item.throughput_ratio,
        "quality": item.quality, "eligible": reason is None, "reason": reason,
    }


def _safe_peaks(
    ladder: dict[int, tuple[dict[str, Any] | None, list[Verdict]]], name: str
) -> dict[int, float]:
    """Peak by length (MiB), from the base up to the last before the first that did not run."""
    peaks: dict[int, float] = {}
    for seq_len, (_, verdicts) in ladder.items():
        item = evidence_of(name, verdicts)
        if item is None or item.peak_memory_mb is None:
            break
        peaks[seq_len] = item.peak_memory_mb
    return peaks


def _growth(peaks: dict[int, float]) -> float | None:
    """MiB per 1024 tokens between the shortest and the longest length, or None without two."""
    if len(peaks) < 2:
        return None
    first, last = min(peaks), max(peaks)
    return finite_number((peaks[last] - peaks[first]) * 1024 / (last - first))
