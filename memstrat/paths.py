"""Proof that a declared path ran: what the counts of one probe step must show.

Needs no torch, so that a record can be audited anywhere. A strategy of one's own brings its own
rule (see `strategies.register`).
"""

from __future__ import annotations

from collections.abc import Callable

from memstrat.records import PathEvidence

PathRule = Callable[[PathEvidence], list[str]]


def check_baseline(path: PathEvidence) -> list[str]:
    """Nothing recomputed, nothing packed."""
    return _problems(
        (path.num_recomputed_regions == 0, f"recomputed regions must be 0, got {path.num_recomputed_regions}"),
        (path.num_packed == 0, f"packed tensors must be 0, got {path.num_packed}"))


def check_checkpoint(path: PathEvidence) -> list[str]:
    """Every region recomputed, nothing packed by a strategy."""
    return _problems(
        _all_recomputed(path),
        (path.num_packed == 0, f"packed tensors must be 0, got {path.num_packed}"))


def check_offload(path: PathEvidence) -> list[str]:
    """Every packed tensor came back, and nothing was recomputed."""
    return _problems(
        (path.num_packed > 0, "packed tensors must be more than 0, got 0"),
        _all_unpacked(path),
        (path.num_recomputed_regions == 0, f"recomputed regions must be 0, got {path.num_recomputed_regions}"))


def check_hybrid(path: PathEvidence) -> list[str]:
    """Every region recomputed; its input packed; nothing packed inside it."""
    return _problems(
        _all_recomputed(path),
        _all_unpacked(path),
        (path.num_region_inputs_packed >= path.num_regions,
         f"packed region inputs must be at least {path.num_regions}, got {path.num_region_inputs_packed}"),
        (path.num_packed_inside_regions == 0,
         f"tensors packed inside regions must be 0, got {path.num_packed_inside_regions}"))


CORE_PATH_RULES: dict[str, PathRule] = {
    "baseline": check_baseline, "checkpoint": check_checkpoint, "offload": check_offload, "hybrid": check_hybrid,
}


def _all_recomputed(path: PathEvidence) -> tuple[bool, str]:
    return (path.num_recomputed_regions == path.num_regions > 0,
            f"recomputed regions must be all {path.num_regions} and more than 0, got {path.num_recomputed_regions}")


def _all_unpacked(path: PathEvidence) -> tuple[bool, str]:
    return (path.num_unpacked == path.num_packed,
            f"unpacked tensors must be as many as packed, {path.num_packed}, got {path.num_unpacked}")


def _problems(*checks: tuple[bool, str]) -> list[str]:
    return [problem for passed, problem in checks if not passed]
