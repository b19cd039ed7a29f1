"""Which rule a wrong answer breaks: a named, ordered list of predicates per exercise.

A predicate sees the call, the expected and the learner's answer, and where they first differ. The
first that holds names the rule; the texts are in `texts`. A rule explains the answer, it is not
what makes it wrong: that is decided by the comparison alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from memstrat.checks.cases import METRICS
from memstrat.checks.compare import BARE_STATUSES, Difference


class Wrong(NamedTuple):
    """One wrong answer, in plain values."""

    args: list[Any]
    kwargs: dict[str, Any]
    expected: Any
    got: Any
    difference: Difference


Predicate = Callable[[Wrong], bool]
Rules = list[tuple[str, Predicate]]


def find_rule(rules: Rules, wrong: Wrong) -> str:
    """Id of the first rule that explains the answer, or `other_value`."""
    for rule, holds in (*SHAPE_RULES, *rules):
        try:
            if holds(wrong):
                return rule
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            continue  # an answer too odd for this predicate to read is explained by a later one
    return "other_value"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _top(wrong: Wrong) -> Any:
    return wrong.difference.path[0] if wrong.difference.path else None


SHAPE_RULES: Rules = [
    ("returns_nothing", lambda w: w.got is None),
    ("wrong_type", lambda w: w.difference.kind == "type" and len(w.difference.path) <= 1),
    ("key_missing", lambda w: w.difference.kind == "missing" and len(w.difference.path) == 1),
]


# --- ex_validate ----------------------------------------------------------------------------------

def _issues(wrong: Wrong) -> tuple[list[str], list[str]]:
    """Issues that are missing from the answer, and those that should not be there, with counts."""
    got = [issue for issue in wrong.got.get("issues", []) if isinstance(issue, str)]
    missing, extra = list(wrong.expected["issues"]), []
    for issue in got:
        if issue in missing:
            missing.remove(issue)
        else:
            extra.append(issue)
    return missing, extra


def _missing(*endings: str) -> Predicate:
    return lambda w: any(issue.endswith(endings) for issue in _issues(w)[0])


def _extra(*endings: str) -> Predicate:
    return lambda w: any(issue.endswith(endings) for issue in _issues(w)[1])


def _both(*predicates: Predicate) -> Predicate:
    return lambda w: all(predicate(w) for predicate in predicates)


def _key_absent(w: Wrong) -> bool:
    baseline, rows = w.args
    missing = _issues(w)[0]
    return any(key not in baseline or key not in row for row in rows for key in ("workload_id", "hardware_id",
               "repeat_count") if f"{row.get('name')}:{key}_mismatch" in missing)


def _odd_path(w: Wrong) -> bool:
    missing = _issues(w)[0]
    return any(row.get("execution_path_verified") for row in w.args[1]
               if f"{row.get('name')}:execution_path_unverified" in missing)


def _has_bool(row: dict[str, Any]) -> bool:
    return any(isinstance(row.get(key), bool) for key in METRICS)


def _has_bad_metric(row: dict[str, Any]) -> bool:
    return any(not _is_number(row.get(key)) for key in METRICS)


VALIDATE_RULES: Rules = [
    ("duplicate_missed", _missing(":duplicate_name")),
    ("duplicate_invented", _extra(":duplicate_name")),
    ("missing_name_missed", _missing("candidate:missing_name")),
    ("nothing_after_missing_name", lambda w: "candidate:missing_name" in w.expected["issues"]
     and any(issue.split(":")[0] in ("candidate", "None", "", "7") for issue in _issues(w)[1])),
    ("missing_key_is_mismatch", _both(_missing("_mismatch"), _key_absent)),
    ("workload_ignored", _missing(":workload_id_mismatch")),
    ("hardware_ignored", _missing(":hardware_id_mismatch")),
    ("repeats_ignored", _missing(":repeat_count_mismatch")),
    ("mismatch_invented", _extra("_mismatch")),
    ("path_exactly_true", _both(_missing(":execution_path_unverified"), _odd_path)),
    ("path_ignored", _missing(":execution_path_unverified")),
    ("failure_rows_keep_no_path", _extra(":execution_path_unverified")),
    ("bool_is_no_number", _both(_missing("baseline:invalid_metrics"), lambda w: _has_bool(w.args[0]))),
    ("not_finite_is_invalid", _missing("baseline:invalid_metrics")),
    ("judges_candidate_gains", _both(_extra(":invalid_metrics"), lambda w: any(_has_bad_metric(r) for r in w.args[1]))),
    ("unknown_issue", lambda w: bool(_issues(w)[1]) or len(w.got["issues"]) > len(w.expected["issues"])),
    ("issue_order", lambda w: _top(w) == "issues"),
    ("names_keep_duplicates", lambda w: _top(w) == "candidate_names" and len(w.got["candidate_names"])
     < len(w.expected["candidate_names"])),
    ("names_in_order", lambda w: _top(w) == "candidate_names"),
    ("valid_means_no_issue", lambda w: _top(w) == "is_valid"),
]


# --- ex_pairs -------------------------------------------------------------------------------------

def _pairs(wrong: Wrong) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """(candidate, expected comparison, the learner's comparison) where all three exist."""
    got = wrong.got.get("comparisons")
    rows = zip(wrong.args[1], wrong.expected["comparisons"], got if isinstance(got, list) else [], strict=False)
    return [(row, ours, theirs) for row, ours, theirs in rows if isinstance(theirs, dict)]


def _status_pairs(wrong: Wrong, expected: tuple[str, ...]) -> list[tuple[dict[str, Any], Any]]:
    return [(row, theirs.get("status")) for row, ours, theirs in _pairs(wrong)
            if ours["status"] in expected and theirs.get("status") != ours["status"]]


def _claims_gain(w: Wrong) -> bool:
    return any(ours["status"] in ("oom", "failed")
               and (theirs.get("status") == "comparable" or any(theirs.get(key) is not None for key in theirs
                                                                if key not in ("name", "status")))
               for _, ours, theirs in _pairs(w))


def _baseline_unusable(w: Wrong) -> bool:
    base = w.args[0]
    return base.get("status", "ok") != "ok" or _has_bad_metric(base) or base["samples_per_s"] <= 0


def _kept_comparable(w: Wrong) -> list[dict[str, Any]]:
    return [row for row, status in _status_pairs(w, ("invalid",)) if status == "comparable"]


def _number_off(key: str, relation: Callable[[float, float], bool]) -> Predicate:
    return lambda w: any(_is_number(theirs.get(key)) and abs(ours[key] - theirs[key]) > 1e-9 * max(1, abs(ours[key]))
                         and relation(ours[key], theirs[key])
                         for _, ours, theirs in _pairs(w) if ours["status"] == "comparable")


def _field_off(key: str) -> Predicate:
    return lambda w: any(ours[key] != theirs.get(key) or type(ours[key]) is not type(theirs.get(key))
                         for _, ours, theirs in _pairs(w) if ours["status"] == theirs.get("status") == "comparable")


PAIRS_RULES: Rules = [
    ("one_row_per_candidate", lambda w: not isinstance(w.got["comparisons"], list)
     or len(w.got["comparisons"]) != len(w.expected["comparisons"])),
    ("rows_in_order", lambda w: [row.get("name") for row in w.got["comparisons"] if isinstance(row, dict)]
     != [row["name"] for row in w.expected["comparisons"]]),
    ("failure_is_no_saving", _claims_gain),
    ("failure_rows_stay", lambda w: bool(_status_pairs(w, ("oom", "failed")))),
    ("baseline_must_be_usable", lambda w: bool(_kept_comparable(w)) and _baseline_unusable(w)),
    ("bool_is_no_number", lambda w: any(_has_bool(row) for row in _kept_comparable(w))),
    ("not_finite_is_invalid", lambda w: any(_has_bad_metric(row) for row in _kept_comparable(w))),
    ("unknown_status_is_invalid", lambda w: bool(_kept_comparable(w))),
    ("missing_status_reads_ok", lambda w: any("status" not in row for row, _ in _status_pairs(w, ("comparable",)))
     or ("status" not in w.args[0] and bool(_status_pairs(w, ("comparable",))))),
    ("sound_row_is_comparable", lambda w: bool(_status_pairs(w, ("comparable",)))),
    ("status_word", lambda w: bool(_status_pairs(w, ("invalid",)))),
    ("saving_sign_swapped", _number_off("memory_saving_mb", lambda ours, theirs: math.isclose(ours, -theirs))),
    ("saving_is_difference", _number_off("memory_saving_mb", lambda ours, theirs: True)),
    ("ratio_inverted", _number_off("throughput_ratio", lambda ours, theirs: math.isclose(ours * theirs, 1))),
    ("ratio_is_candidate_over_baseline", _number_off("throughput_ratio", lambda ours, theirs: True)),
    ("quality_sign_swapped", _number_off("quality_delta", lambda ours, theirs: math.isclose(ours, -theirs))),
    ("quality_is_difference", _number_off("quality_delta", lambda ours, theirs: True)),
    ("path_ignored", _field_off("execution_path_verified")),
    ("repeats_of_the_candidate", _field_off("repeat_count")),
    ("bare_failure_rows", lambda w: w.difference.kind == "extra"),
    ("counts_by_status", lambda w: str(_top(w)).endswith("_count")),
    ("baseline_row_kept", lambda w: _top(w) == "baseline"),
]


# --- ex_handoff -----------------------------------------------------------------------------------

def _comparable(wrong: Wrong) -> list[dict[str, Any]]:
    return [row for row in wrong.args[0]["comparisons"] if row.get("status") == "comparable"]


def _minimum(wrong: Wrong) -> int:
    return int(wrong.kwargs.get("minimum_repeats", 3))


def _repeats(wrong: Wrong) -> list[int]:
    return [row["repeat_count"] for row in (wrong.args[0]["baseline"], *_comparable(wrong))]


def _names(wrong: Wrong) -> list[Any]:
    names = wrong.got.get("eligible_candidates")
    return names if isinstance(names, list) else []


def _unverified(wrong: Wrong) -> list[str]:
    return [row["name"] for row in _comparable(wrong) if row["execution_path_verified"] is not True]


def _missed_rerun(w: Wrong) -> bool:
    return w.expected["status"] == "rerun_required" and w.got.get("status") != "rerun_required"


def _needless_rerun(w: Wrong) -> bool:
    return w.expected["status"] != "rerun_required" and w.got.get("status") == "rerun_required"


def _uses_three(w: Wrong) -> bool:
    """The answer's verdict on repeats is the one a fixed minimum of 3 would give, and it is wrong."""
    return _minimum(w) != 3 and (_missed_rerun(w) or _needless_rerun(w)) \
        and (min(_repeats(w)) < 3) == (w.got.get("status") == "rerun_required")


def _lowest_is(distance: int) -> Predicate:
    """The lowest repeat count stands this far from the minimum."""
    return lambda w: min(_repeats(w)) == _minimum(w) + distance


HANDOFF_RULES: Rules = [
    ("failure_rows_have_no_repeats", lambda w: _needless_rerun(w) and min(_repeats(w)) > _minimum(w)
     and len(_comparable(w)) < len(w.args[0]["comparisons"])),
    ("minimum_is_an_argument", _uses_three),
    ("threshold_off_by_one", _both(_needless_rerun, _lowest_is(0))),
    ("repeats_before_paths", lambda w: _missed_rerun(w) and w.got.get("status") == "no_valid_candidate"),
    ("threshold_off_by_one", _both(_missed_rerun, _lowest_is(-1))),
    ("baseline_repeats_count_too", lambda w: _missed_rerun(w) and w.args[0]["baseline"]["repeat_count"] < _minimum(w)),
    ("every_comparable_needs_repeats", _missed_rerun),
    ("rerun_only_for_repeats", _needless_rerun),
    ("path_ignored", lambda w: any(name in _names(w) for name in _unverified(w))),
    ("failure_rows_are_no_candidates", lambda w: any(row["name"] in _names(w) for row in w.args[0]["comparisons"]
                                                     if row["status"] in BARE_STATUSES)),
    ("no_candidate_without_path", lambda w: w.expected["status"] == "no_valid_candidate" != w.got.get("status")),
    ("hands_over_none", lambda w: w.expected["status"] != "ready_for_budget_review" and bool(_names(w))),
    ("hands_over_all", lambda w: set(map(str, _names(w))) < set(w.expected["eligible_candidates"])),
    ("names_in_order", lambda w: _top(w) == "eligible_candidates"),
    ("status_word", lambda w: _top(w) == "status"),
    ("reason_word", lambda w: _top(w) in ("reason", "next_action")),
]
