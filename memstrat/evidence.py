"""Reference of the three exercises, and the pairs that a record holds.

Judges comparability and pairs numbers; budgets and decisions are `decision`'s. The contract of
each exercise is the docstring of its stub in `exercises`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

from memstrat import exercises
from memstrat.errors import InputError, RecordError

METRICS = ("peak_memory_mb", "samples_per_s", "eval_loss")
IDENTITY_KEYS = ("workload_id", "hardware_id", "repeat_count")
FAILURE_STATUSES = ("oom", "failed")
MAX_COPY_DEPTH = 8  # deeper than any row; ends on a dict that contains itself


def finite_number(value: Any) -> float | None:
    """The value as a plain float, or None if it is not a finite number.

    A bool is not a number, nor is an int too large for a float. NumPy's numbers are.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def whole_count(value: Any) -> int:
    """The value as a count; 0 if it is not a whole, finite number >= 0."""
    number = finite_number(value)
    return int(number) if number is not None and number >= 0 and number.is_integer() else 0


def row_name(row: Any) -> str | None:
    """A row's name, or None if it has no non-empty string for one."""
    name = row.get("name") if isinstance(row, dict) else None
    return str(name) if isinstance(name, str) and name else None


def rows_of(candidates: Any) -> list[dict[str, Any]]:
    """The rows as dicts: an empty one for what is no dict, and for a whole that is no list."""
    if not isinstance(candidates, (list, tuple)):
        return [{}]
    return [row if isinstance(row, dict) else {} for row in candidates]


def _follows(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Take the contract from the stub, so that it is written once."""

    def adopt(reference: Callable[..., Any]) -> Callable[..., Any]:
        reference.__doc__ = stub.__doc__
        return reference

    return adopt


@_follows(exercises.validate_strategy_experiment)
def validate_strategy_experiment(
    baseline: dict[str, Any], candidates: list[dict[str, Any]]
) -> dict[str, Any]:
    base = baseline if isinstance(baseline, dict) else {}
    names: list[str] = []
    issues: list[str] = []
    for row in rows_of(candidates):
        name = row_name(row)
        if name is None:
            issues.append("candidate:missing_name")
            continue
        if name in names:
            issues.append(f"{name}:duplicate_name")
        names.append(name)
        issues += [f"{name}:{key}_mismatch" for key in IDENTITY_KEYS if not _agree(key, base, row)]
        if _status(row) not in FAILURE_STATUSES and row.get("execution_path_verified") is not True:
            issues.append(f"{name}:execution_path_unverified")
    if _metrics(base) is None:
        issues.append("baseline:invalid_metrics")
    return {"is_valid": not issues, "issues": issues, "candidate_names": names}


@_follows(exercises.build_strategy_pair_evidence)
def build_strategy_pair_evidence(
    baseline: dict[str, Any], candidates: list[dict[str, Any]]
) -> dict[str, Any]:
    base = baseline if isinstance(baseline, dict) else {}
    base_metrics = _metrics(base) if _status(base) == "ok" else None
    if base_metrics is not None and base_metrics["samples_per_s"] <= 0:
        base_metrics = None
    comparisons = [_compare(base_metrics, row) for row in rows_of(candidates)]
    statuses = [comparison["status"] for comparison in comparisons]
    return {
        "baseline": _plain(base),
        "comparisons": comparisons,
        "comparable_count": statuses.count("comparable"),
        "oom_count": statuses.count("oom"),
        "failed_count": statuses.count("failed"),
        "invalid_count": statuses.count("invalid"),
    }


@_follows(exercises.decide_strategy_handoff)
def decide_strategy_handoff(evidence: dict[str, Any], minimum_repeats: int = 3) -> dict[str, Any]:
    given = evidence if isinstance(evidence, dict) else {}
    base = given.get("baseline") if isinstance(given.get("baseline"), dict) else {}
    comparable = [row for row in rows_of(given.get("comparisons")) if _status(row) == "comparable"]
    minimum = finite_number(minimum_repeats)
    minimum = math.inf if minimum is None else max(minimum, 1)
    names = [row_name(row) for row in comparable if row.get("execution_path_verified") is True]
    eligible = [name for name in names if name is not None]
    if any(whole_count(row.get("repeat_count")) < minimum for row in (base, *comparable)):
        return _handoff("rerun_required", "insufficient_repeats", [], "repeat_paired_runs")
    if not eligible:
        return _handoff("no_valid_candidate", "no_comparable_strategy", [],
                        "repair_strategy_execution")
    return _handoff("ready_for_budget_review", "paired_evidence_complete", eligible,
                    "send_to_memory_budget_project")


def pairs_from_record(
    record: dict[str, Any], seq_len: int | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Baseline row and candidate rows of a G0 record, or of one length of a G1 record.

    What the record does not say stays None, so that `validate_strategy_experiment` reports it as a
    mismatch; nothing is filled in. No row is dropped and no figure is changed.

    Args:
        record: a G0 or G1 record as read from JSON.
        seq_len: which of a G1 record's lengths; for a G0 record None, or its own length.

    Returns:
        `(baseline, candidates)` with `name`, `status`, `workload_id`, `hardware_id`,
        `repeat_count`, `execution_path_verified`, `peak_memory_mb` (MiB), `samples_per_s` and
        `eval_loss`. `repeat_count` is the number of successful runs, and for oom and failed rows
        the planned repeats of `config`.

    Raises:
        RecordError: the record holds no list of rows, or not exactly one baseline among them.
        InputError: the record has no such length.
    """
    if not isinstance(record, dict):
        raise RecordError(
            f"record: must be a JSON object, got {type(record).__name__}. "
            "Read it with json.load first."
        )
    config = record.get("config") if isinstance(record.get("config"), dict) else {}
    holder = _at_length(record, config, seq_len)
    rows = holder.get("candidates")
    if not isinstance(rows, list):
        raise RecordError(
            f"candidates: must be a list of rows, got {type(rows).__name__}. "
            "Check that the file is a g0 or g1 record."
        )
    shared = {key: _identity_id(key, holder, record) for key in ("workload_id", "hardware_id")}
    pairs = [_pair_row(row, shared, config.get("repeats")) for row in rows_of(rows)]
    baselines = [row for row in pairs if row["name"] == "baseline"]
    if len(baselines) != 1:
        raise RecordError(
            f"candidates: must hold exactly one baseline row, got {len(baselines)}. "
            "Measure again under a new label."
        )
    return baselines[0], [row for row in pairs if row["name"] != "baseline"]


def _agree(key: str, base: dict[str, Any], row: dict[str, Any]) -> bool:
    """True if both sides give the key and give the same. A count is a number; an id may be text."""
    ours, theirs = base.get(key), row.get(key)
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours == theirs and ours != "" and key != "repeat_count"
    number = finite_number(ours)
    return number is not None and number == finite_number(theirs)


def _status(row: dict[str, Any]) -> str | None:
    """The status; `ok` only where the key is absent, None for what is no string."""
    status = row.get("status", "ok")
    return str(status) if isinstance(status, str) else None


def _metrics(row: dict[str, Any]) -> dict[str, float] | None:
    """The three metrics as floats, or None if any is not a finite number."""
    values = {key: finite_number(row.get(key)) for key in METRICS}
    metrics = {key: value for key, value in values.items() if value is not None}
    return metrics if len(metrics) == len(METRICS) else None


def _compare(base: dict[str, float] | None, row: dict[str, Any]) -> dict[str, Any]:
    name, status = row_name(row), _status(row)
    if status in FAILURE_STATUSES:
        return {"name": name, "status": status}
    metrics = _metrics(row) if status == "ok" else None
    if name is None or base is None or metrics is None:
        return {"name": name, "status": "invalid"}
    gains = {
        "memory_saving_mb": base["peak_memory_mb"] - metrics["peak_memory_mb"],
        "throughput_ratio": metrics["samples_per_s"] / base["samples_per_s"],
        "quality_delta": metrics["eval_loss"] - base["eval_loss"],
    }
    if not all(math.isfinite(value) for value in gains.values()):
        return {"name": name, "status": "invalid"}
    return {
        "name": name,
        "status": "comparable",
        "repeat_count": whole_count(row.get("repeat_count")),
        "execution_path_verified": row.get("execution_path_verified") is True,
        **{f"candidate_{key}": value for key, value in metrics.items()},
        **gains,
    }


def _handoff(status: str, reason: str, names: list[str], next_action: str) -> dict[str, Any]:
    return {"status": status, "reason": reason, "eligible_candidates": names,
            "next_action": next_action}


def _at_length(
    record: dict[str, Any], config: dict[str, Any], seq_len: int | None
) -> dict[str, Any]:
    """The part of the record that holds the candidates of one length."""
    if "length_records" not in record:
        if seq_len not in (None, config.get("seq_len")):
            raise InputError(
                f"seq_len: must be {config.get('seq_len')}, the only length of a g0 record, "
                f"got {seq_len!r}. Leave it out, or pass a g1 record."
            )
        return record
    records = rows_of(record["length_records"])
    matching = [item for item in records if seq_len is not None and item.get("seq_len") == seq_len]
    if len(matching) != 1:
        lengths = ", ".join(str(item.get("seq_len")) for item in records)
        raise InputError(
            f"seq_len: must be one of the record's lengths ({lengths}), got {seq_len!r}. "
            "Choose one of them."
        )
    return matching[0]


def _identity_id(key: str, holder: dict[str, Any], record: dict[str, Any]) -> str | None:
    """The nearest statement of an id: of the length, the record, or its `experiment` block."""
    for place in (holder, record, record.get("experiment")):
        if isinstance(place, dict) and isinstance(place.get(key), str):
            return place[key]
    return None


def _pair_row(
    row: dict[str, Any], shared: dict[str, str | None], planned_repeats: Any
) -> dict[str, Any]:
    status = row.get("status") if isinstance(row.get("status"), str) else None
    repeats = planned_repeats if status in FAILURE_STATUSES else row.get("successful_runs")
    verified = row.get("execution_path_verified")
    return {
        "name": row_name(row),
        "status": status,
        **shared,
        "repeat_count": None if finite_number(repeats) is None else whole_count(repeats),
        "execution_path_verified": verified if isinstance(verified, bool) else None,
        **{key: finite_number(row.get(key)) for key in METRICS},
    }


def _plain(value: Any, depth: int = MAX_COPY_DEPTH) -> Any:
    """A JSON-safe copy; None stands in for what JSON has no word for."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if depth and isinstance(value, dict):
        return {
            str(key): _plain(item, depth - 1) for key, item in value.items() if isinstance(key, str)
        }
    if depth and isinstance(value, (list, tuple)):
        return [_plain(item, depth - 1) for item in value]
    if isinstance(value, numbers.Integral) and finite_number(value) is not None:
        return int(value)
    return finite_number(value)
