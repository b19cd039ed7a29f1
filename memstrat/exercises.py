"""The three exercises on fair pairs: their contracts, and nothing else.

Each stub's docstring is the whole contract; `memstrat.evidence` holds a reference that takes its
docstrings from here. Plain dicts go in and out, so neither torch nor a record model is needed.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn


class Exercise(NamedTuple):
    """Where an exercise lives. Both addresses are for `pkgutil.resolve_name`."""

    grade_id: str
    function_name: str
    stub_address: str
    reference_address: str


def _exercise(grade_id: str, function_name: str) -> Exercise:
    return Exercise(grade_id, function_name, f"memstrat.exercises:{function_name}",
                    f"memstrat.evidence:{function_name}")


EXERCISES: dict[str, Exercise] = {
    exercise.grade_id: exercise
    for exercise in (
        _exercise("ex_validate", "validate_strategy_experiment"),
        _exercise("ex_pairs", "build_strategy_pair_evidence"),
        _exercise("ex_handoff", "decide_strategy_handoff"),
    )
}


def _not_done(grade_id: str) -> NoReturn:
    raise NotImplementedError(
        f"{grade_id}: not done yet. Write {EXERCISES[grade_id].function_name} from its docstring."
    )


def validate_strategy_experiment(
    baseline: dict[str, Any], candidates: list[dict[str, Any]]
) -> dict[str, Any]:
    """Say whether the candidates may be compared with the baseline at all.

    It judges comparability, never gains: no budget, no saving, no ratio.

    Args:
        baseline: row with `workload_id`, `hardware_id`, `repeat_count`, `peak_memory_mb` (MiB),
            `samples_per_s` and `eval_loss`.
        candidates: rows with the same keys, and `name`, `status`, `execution_path_verified`.

    Returns:
        `is_valid`: True if there is no issue.
        `candidate_names`: every named candidate in order, duplicates included.
        `issues`: strings, candidate by candidate in the order given, and for each in this order:

        1. `candidate:missing_name` if the name is no non-empty string; nothing else is checked.
        2. `<name>:duplicate_name` if an earlier candidate has that name.
        3. `<name>:workload_id_mismatch`, `<name>:hardware_id_mismatch`,
           `<name>:repeat_count_mismatch` where it differs from the baseline's; a key missing on
           either side is a mismatch.
        4. `<name>:execution_path_unverified` unless `execution_path_verified` is exactly True. Not
           asked of rows whose status is `oom` or `failed`: they stay as failure evidence.

        Last, `baseline:invalid_metrics` if its `peak_memory_mb`, `samples_per_s` or `eval_loss` is
        not a finite number. A bool is not a number.

    Odd input never passes for a valid pair. An id that is neither a non-empty string nor a finite
    number, and a `repeat_count` that is no finite number, count as missing. A row that is no dict
    has no name. Candidates that are no list or tuple are judged as one row without a name. The
    input is not changed.
    """
    _not_done("ex_validate")


def build_strategy_pair_evidence(
    baseline: dict[str, Any], candidates: list[dict[str, Any]]
) -> dict[str, Any]:
    """Turn a validated experiment into one comparison per candidate (memory in MiB).

    No budget here, and no second validation: identity and duplicates are checked before.

    Args:
        baseline: as for `validate_strategy_experiment`; an absent `status` reads as `ok`.
        candidates: as for `validate_strategy_experiment`; an absent `status` reads as `ok`.

    Returns:
        `baseline`: a copy of the baseline row.
        `comparisons`: one dict a candidate, in order:

        * status `oom` or `failed`: `{"name", "status"}`, whatever its metrics say.
        * any other status than `ok`, or a `peak_memory_mb`, `samples_per_s` or `eval_loss` that is
          not a finite number: `{"name", "status": "invalid"}`. A bool is not a number.
        * else `name`, `status`: `comparable`, `repeat_count`, `execution_path_verified` (bool),
          `candidate_peak_memory_mb`, `candidate_samples_per_s`, `candidate_eval_loss`, and
          `memory_saving_mb` = baseline - candidate peak,
          `throughput_ratio` = candidate / baseline samples per second,
          `quality_delta` = candidate - baseline eval loss.

        `comparable_count`, `oom_count`, `failed_count`, `invalid_count`: how many of each.

        If the baseline's status is not `ok`, one of its metrics is not a finite number, or its
        throughput is <= 0, no candidate is comparable: all but oom and failed rows are `invalid`.

    Odd input never becomes a gain. A status that is present but not `ok` (None too), a row without
    a name, a row that is no dict, and a difference or ratio that overflows are `invalid`; a
    candidates argument that is no list or tuple is one such row. A `repeat_count` that is no whole
    number >= 0 reads as 0. Every number that comes out is finite (in `baseline`, None stands in
    for one that is not). The input is not changed.
    """
    _not_done("ex_pairs")


def decide_strategy_handoff(evidence: dict[str, Any], minimum_repeats: int = 3) -> dict[str, Any]:
    """Say whether paired evidence is complete enough for the budget project.

    It hands over candidates; it picks none of them and looks at no budget.

    Args:
        evidence: what `build_strategy_pair_evidence` returned.
        minimum_repeats: successful runs that the baseline and every comparable run must have.

    Returns:
        `status`, `reason`, `next_action` and `eligible_candidates` (names, in order), first match:

        1. the baseline or any comparable run has fewer repeats than the minimum:
           `rerun_required`, `insufficient_repeats`, `repeat_paired_runs`, no names.
        2. no comparable run has `execution_path_verified` exactly True:
           `no_valid_candidate`, `no_comparable_strategy`, `repair_strategy_execution`, no names.
        3. else `ready_for_budget_review`, `paired_evidence_complete`,
           `send_to_memory_budget_project`, with the names of the comparable, verified runs.

    Odd input is never handed over. A `repeat_count` that is no whole number >= 0 reads as 0. A
    minimum that is no finite number is never met, one below 1 reads as 1. Comparisons that are no
    list, rows that are no dict and rows without a name hand over nothing. The input is not changed.
    """
    _not_done("ex_handoff")
