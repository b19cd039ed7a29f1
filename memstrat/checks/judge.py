"""Judge one exercise: its cases, the right answers, and the first rule a wrong answer breaks.

Shared by `memstrat.check` and the grader, so that the two agree. Knows nothing of where the
function runs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from memstrat.checks import cases, cases_bytes, rules
from memstrat.checks.cases import Case
from memstrat.checks.compare import first_difference
from memstrat.checks.expected import expected_answer
from memstrat.checks.registry import ExerciseSpec
from memstrat.checks.rules import Rules, Wrong, find_rule
from memstrat.checks.wire import same, to_plain

NUM_RANDOM = 24


class _Material(NamedTuple):
    visible: Callable[[], list[Case]]
    random: Callable[[random.Random, int], list[Case]]
    rules: Rules


_MATERIAL: dict[str, _Material] = {
    "ex_validate": _Material(cases.visible_validate, cases.random_validate, rules.VALIDATE_RULES),
    "ex_pairs": _Material(cases.visible_pairs, cases.random_pairs, rules.PAIRS_RULES),
    "ex_handoff": _Material(cases.visible_handoff, cases.random_handoff, rules.HANDOFF_RULES),
    "ex_saved_bytes": _Material(cases_bytes.visible_saved_bytes, cases_bytes.random_saved_bytes,
                                cases_bytes.SAVED_BYTES_RULES),
    "ex_pack_unpack": _Material(cases_bytes.visible_pack_unpack, cases_bytes.random_pack_unpack,
                                cases_bytes.PACK_UNPACK_RULES),
    "ex_peak_floor": _Material(cases_bytes.visible_peak_floor, cases_bytes.random_peak_floor,
                               cases_bytes.PEAK_FLOOR_RULES),
}


class Answer(NamedTuple):
    """What came back from one call, in plain values. `rule` is set where there is no value."""

    value: Any = None
    args_after: Any = None
    kwargs_after: Any = None
    rule: str | None = None  # raised, timed_out, process_ended, not_finished, too_much_output
    error: str = ""


class Verdict(NamedTuple):
    """One case judged. `rule` is None for a right answer."""

    case: Case
    answer: Answer
    rule: str | None = None
    place: str = ""


def visible_cases(spec: ExerciseSpec) -> list[Case]:
    return _MATERIAL[spec.grade_id].visible()


def random_cases(spec: ExerciseSpec, seed: int | str, count: int = NUM_RANDOM, source: str = "random") -> list[Case]:
    """Seeded cases; equal seeds give equal cases. `source` is `random` or `hidden`."""
    draw = random.Random(f"{spec.grade_id}:{source}:{seed}")
    return [case._replace(source=source) for case in _MATERIAL[spec.grade_id].random(draw, count)]


def judge(spec: ExerciseSpec, case: Case, answer: Answer, expected: Any = None) -> Verdict:
    """The verdict on one answer. `expected` saves asking for the right one again."""
    if answer.rule is not None:
        return Verdict(case, answer, answer.rule)
    expected = expected_answer(spec, case) if expected is None else expected
    difference = first_difference(expected, answer.value)
    if difference is not None:
        wrong = Wrong(case.args, case.kwargs, expected, answer.value, difference)
        return Verdict(case, answer, find_rule(_MATERIAL[spec.grade_id].rules, wrong), difference.place)
    before = (to_plain(case.args), to_plain(case.kwargs))
    if not (same(before[0], answer.args_after) and same(before[1], answer.kwargs_after)):
        return Verdict(case, answer, "input_mutated")
    return Verdict(case, answer)


def with_repeats(asked: list[Case]) -> list[Case]:
    """The cases, then the first one once more: an answer that depends on earlier calls shows there."""
    return [*asked, asked[0]._replace(name=f"{asked[0].name}, asked again")]


def judge_all(spec: ExerciseSpec, asked: list[Case], answers: list[Answer],
              expected: list[Any] | None = None) -> list[Verdict]:
    """One verdict a case; a last case wrong where its first asking was right names the state kept between."""
    known = expected or [None] * len(asked)
    verdicts = [judge(spec, *one) for one in zip(asked, answers, known, strict=True)]
    last = verdicts[-1]
    if len(verdicts) > 1 and last.rule is not None and verdicts[0].rule is None and last.answer.rule is None \
            and same(last.case.args, verdicts[0].case.args):
        verdicts[-1] = last._replace(rule="same_input_same_answer")
    return verdicts
