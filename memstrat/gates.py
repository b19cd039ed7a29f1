"""What one candidate row is held against: path, runs, memory, throughput, quality.

Reads rows, a budget and a quality floor; decides nothing (see `decision` and `boundary`) and knows
nothing of how a row was measured. Where input is odd, the answer is the one that cannot turn a
failed or unproven run into a gain: a row whose name, runs, path or metrics are in doubt is no
evidence, two rows of one name are both in doubt, and a limit that is no finite number is never met.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memstrat.errors import InputError
from memstrat.evidence import METRICS, finite_number, row_name, rows_of, whole_count

DEFAULT_MIN_MEMORY_SAVING_MB = 512.0
DEFAULT_MIN_THROUGHPUT_RATIO = 0.70
QUALITY_SLACK_FACTOR = 1.02  # of the baseline's eval loss, where no floor is given
FLOOR_GIVEN, FLOOR_FROM_BASELINE, FLOOR_NONE = "given", "baseline_eval_loss", "not_judged"
PATH_VERIFIED, PATH_UNVERIFIED, PATH_NOT_RECORDED = "verified", "unverified", "not recorded"
# In the order in which they are asked. `throughput_floor` (samples/s) belongs to G0 alone; saving
# and throughput ratio are measured against the baseline.
GATES = ("path_unverified", "runs_incomplete", "memory_cap", "throughput_floor", "memory_saving",
         "throughput", "quality")
FEASIBILITY_GATES = ("path_unverified", "runs_incomplete", "memory_cap", "throughput_floor",
                     "quality")


@dataclass(frozen=True)
class Verdict:
    """One row against every gate. MB means MiB; figures are None unless the row was measured."""

    name: str | None
    status: str | None
    path: str  # verified, unverified or not recorded
    measured: bool  # status ok, every repeat succeeded, finite metrics, an unambiguous name
    peak_memory_mb: float | None
    samples_per_s: float | None
    eval_loss: float | None
    memory_saving_mb: float | None  # against the baseline; None without one
    throughput_ratio: float | None
    quality: str | None  # passed, failed or not_judged
    gates: Mapping[str, bool | None]  # by name, in order: passed, failed, or None where not asked

    @property
    def is_evidence(self) -> bool:
        """Measured, and shown to have run on its declared path."""
        return self.measured and self.path == PATH_VERIFIED

    @property
    def feasible(self) -> bool:
        """Evidence within memory cap, throughput floor and quality floor."""
        return self.is_evidence and all(self.gates[gate] is not False for gate in FEASIBILITY_GATES)

    @property
    def meets_minimums(self) -> bool:
        """Saves enough memory and keeps enough throughput; never true of the baseline itself."""
        return self.gates["memory_saving"] is True and self.gates["throughput"] is True

    @property
    def first_failed_gate(self) -> str | None:
        """Why the row is no feasible, worthwhile candidate, or None."""
        return next((gate for gate, passed in self.gates.items() if passed is False), None)

    @property
    def rank(self) -> tuple[float, float, float]:
        """Sort key: lowest peak, then highest throughput, then lowest eval loss."""
        if self.peak_memory_mb is None or self.samples_per_s is None or self.eval_loss is None:
            return (math.inf, math.inf, math.inf)
        return (self.peak_memory_mb, -self.samples_per_s, self.eval_loss)


def judge_candidates(
    candidates: list[dict[str, Any]], budget: dict[str, Any], quality_floor: dict[str, Any] | None
) -> list[Verdict]:
    """One verdict a row, in order, for the rows of one workload.

    Planned repeats are read from the rows: the most runs that any of them records. Two rows of one
    name are both shown as `duplicate_name` and count as unmeasured.
    """
    rows = rows_of(candidates)
    names = [row_name(row) for row in rows]
    rows = [{**row, "status": "duplicate_name"} if name and names.count(name) > 1 else row
            for name, row in zip(names, rows, strict=True)]
    planned = max((_recorded_runs(row) for row in rows), default=0)
    baseline = next((row for row in rows if row_name(row) == "baseline"), None)
    return [judge_candidate(row, budget, quality_floor, baseline, planned) for row in rows]


def judge_candidate(
    row: dict[str, Any],
    budget: dict[str, Any],
    quality_floor: dict[str, Any] | None,
    baseline: dict[str, Any] | None = None,
    planned_repeats: int = 0,
) -> Verdict:
    """One row against every gate.

    Path is not asked of oom and failed rows: they fail `runs_incomplete`. Saving and ratio are not
    asked of the baseline, nor where the baseline given is no evidence.

    Args:
        row: a candidate row of a record.
        budget: `memory_cap_mb`, `min_samples_per_s` (default 0), `min_memory_saving_mb` (default
            512), `min_throughput_ratio` (default 0.70). Without a cap nothing is within it.
        quality_floor: `max_val_loss`; None or null: quality is not judged.
        baseline: the baseline's row, the row itself included.
        planned_repeats: successful runs it must have; 0 where no row records any.
    """
    limits = budget if isinstance(budget, dict) else {}
    metrics = _measured(row, planned_repeats)
    reference = _measured(baseline, planned_repeats) if baseline is not None else None
    if reference is not None and path_state(baseline) != PATH_VERIFIED:
        reference = None
    status = row.get("status") if isinstance(row.get("status"), str) else None
    path = path_state(row)
    gates: dict[str, bool | None] = dict.fromkeys(GATES)
    gates["path_unverified"] = None if status in ("oom", "failed") else path == PATH_VERIFIED
    gates["runs_incomplete"] = metrics is not None
    saving = ratio = quality = None
    if metrics is not None:
        gates["memory_cap"] = at_least(_limit(limits, "memory_cap_mb"), metrics["peak_memory_mb"])
        gates["throughput_floor"] = at_least(
            metrics["samples_per_s"], _limit(limits, "min_samples_per_s", 0.0))
        quality = _judge_quality(metrics["eval_loss"], quality_floor)
        gates["quality"] = None if quality == FLOOR_NONE else quality == "passed"
    if metrics is not None and reference is not None:
        saving = finite_number(reference["peak_memory_mb"] - metrics["peak_memory_mb"])
        ratio = finite_number(metrics["samples_per_s"] / reference["samples_per_s"])
        if row_name(row) != "baseline":
            gates["memory_saving"] = at_least(saving, min_memory_saving_mb(limits))
            gates["throughput"] = at_least(ratio, min_throughput_ratio(limits))
    shown = metrics or dict.fromkeys(METRICS)
    return Verdict(
        name=row_name(row), status=status, path=path, measured=metrics is not None,
        memory_saving_mb=saving, throughput_ratio=ratio, quality=quality, gates=gates, **shown,
    )


def evidence_of(name: str, verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict of that name if it is evidence, else None."""
    return next((item for item in verdicts if item.name == name and item.is_evidence), None)


def rows_without_path(candidates: list[dict[str, Any]]) -> list[str]:
    """Names of rows with status ok that do not say whether their path was verified."""
    return [row_name(row) or "an unnamed row" for row in rows_of(candidates)
            if row.get("status") == "ok" and path_state(row) == PATH_NOT_RECORDED]


def path_state(row: dict[str, Any]) -> str:
    """`verified`, `unverified` or `not recorded`; only exactly True is verified."""
    value = row.get("execution_path_verified")
    if value is None:
        return PATH_NOT_RECORDED
    return PATH_VERIFIED if value is True else PATH_UNVERIFIED


def default_quality_floor(
    baseline: dict[str, Any] | None, given: float | None = None
) -> dict[str, Any]:
    """`max_val_loss` and where it comes from: given, or the baseline's eval loss x 1.02.

    Without either it is null and quality is not judged, which blocks nothing and fails nothing.

    Raises:
        InputError: the given floor is not a finite number.
    """
    if given is not None:
        floor = finite_number(given)
        if floor is None:
            raise InputError(f"max_val_loss: must be a finite number, got {given!r}. "
                             "Give one, or leave it out to derive it from the baseline.")
        return {"max_val_loss": floor, "source": FLOOR_GIVEN}
    row = baseline if isinstance(baseline, dict) and baseline.get("status") == "ok" else {}
    loss = finite_number(row.get("eval_loss"))
    floor = finite_number(loss * QUALITY_SLACK_FACTOR) if loss is not None else None
    return {"max_val_loss": floor, "source": FLOOR_NONE if floor is None else FLOOR_FROM_BASELINE}


def at_least(value: float | None, minimum: float | None) -> bool:
    """value >= minimum, forgiving what rounding takes off a difference or ratio.

    The slack (1e-9 MiB is a thousandth of a byte) is far below anything that can be measured.
    """
    if value is None or minimum is None:
        return False
    return value >= minimum or math.isclose(value, minimum, rel_tol=1e-12, abs_tol=1e-9)


def min_memory_saving_mb(table: dict[str, Any]) -> float | None:
    """The minimum saving (MiB) of a budget or summary; None if it is unusable, so never met."""
    return _limit(table, "min_memory_saving_mb", DEFAULT_MIN_MEMORY_SAVING_MB)


def min_throughput_ratio(table: dict[str, Any]) -> float | None:
    """The minimum throughput ratio of a budget or summary; None if unusable, so never met."""
    return _limit(table, "min_throughput_ratio", DEFAULT_MIN_THROUGHPUT_RATIO)


def decision_of(decision: str, reason: str, next_action: str) -> dict[str, Any]:
    """The three words of every decision."""
    return {"decision": decision, "reason": reason, "next_action": next_action}


def _limit(table: dict[str, Any], key: str, default: float | None = None) -> float | None:
    """A limit as a float; the default where it is absent or null, None where it is unusable."""
    value = table.get(key)
    return default if value is None else finite_number(value)


def _recorded_runs(row: dict[str, Any]) -> int:
    """How many runs the row says it had, of whatever outcome; 0 if it does not say."""
    counted = sum(whole_count(row.get(f"{kind}_runs")) for kind in ("successful", "oom", "failed"))
    runs = row.get("runs")
    return max(counted, len(runs) if isinstance(runs, (list, tuple)) else 0)


def _measured(row: dict[str, Any], planned_repeats: int) -> dict[str, float] | None:
    """The three metrics of a row whose every run succeeded, or None.

    A peak or throughput of 0 or less was not measured. Figures beside the three must be finite
    where they are recorded: a NaN training loss is a failed run.
    """
    if row_name(row) is None or row.get("status") != "ok":
        return None
    if whole_count(row.get("successful_runs")) < max(planned_repeats, _recorded_runs(row)):
        return None
    metrics = {key: finite_number(row.get(key)) for key in METRICS}
    also = [row[key] for key in ("loss", "step_time_ms") if row.get(key) is not None]
    if None in metrics.values() or any(finite_number(value) is None for value in also):
        return None
    figures = {key: value for key, value in metrics.items() if value is not None}
    return figures if figures["peak_memory_mb"] > 0 and figures["samples_per_s"] > 0 else None


def _judge_quality(eval_loss: float, quality_floor: Any) -> str:
    """passed, failed, or not_judged where there is no floor; an unusable floor is never met."""
    if quality_floor is None:
        return FLOOR_NONE
    if not isinstance(quality_floor, dict):
        return "failed"
    if quality_floor.get("max_val_loss") is None:
        return FLOOR_NONE
    return "passed" if at_least(_limit(quality_floor, "max_val_loss"), eval_loss) else "failed"
