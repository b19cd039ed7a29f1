"""`memstrat.check`: does the learner's function keep its contract, and if not, which rule breaks?

Passing says that the answers agreed on the visible and on fresh random cases; it is no proof for
all input, and a grader adds hidden cases. Torch is imported for the two torch exercises only.
"""

from __future__ import annotations

import copy
import os
import pprint
import secrets
from collections.abc import Callable
from typing import Any, NamedTuple

from memstrat.checks import texts, work
from memstrat.checks.judge import Answer, Verdict, judge_all, random_cases, visible_cases, with_repeats
from memstrat.checks.registry import ExerciseSpec, exercise
from memstrat.checks.texts import say
from memstrat.checks.wire import to_plain
from memstrat.errors import CheckFailed, InputError

MAX_SHOWN = 1500  # characters of an input or output in a message


class CheckResult(NamedTuple):
    """What a check found; true if the function passed. Jupyter shows nothing for it."""

    grade_id: str
    passed: bool
    seed: int
    num_cases: int

    def __bool__(self) -> bool:
        return self.passed

    def _ipython_display_(self) -> None:
        """The text was printed already."""


def check(
    grade_id: str,
    function: Callable[..., Any],
    *,
    seed: int | None = None,
    strict: bool | None = None,
    language: str | None = None,
) -> CheckResult:
    """Run the visible and fresh random cases against a function.

    Args:
        grade_id: which exercise.
        function: the learner's function.
        seed: of the random cases; `MEMSTRAT_CHECK_SEED`, or a new one each time, printed.
        strict: raise for an untouched stub too; by default if `MEMSTRAT_STRICT` is 1.
        language: `en` or `zh`; by default `MEMSTRAT_LANGUAGE`.

    Returns:
        A true result for a passed check, a false one for an untouched stub.

    Raises:
        CheckFailed: the first case whose answer breaks a rule, with what went in and what came out.
        InputError, UnknownNameError: no function was given, or no exercise has this id.
    """
    spec, language = exercise(grade_id), texts.choose_language(language)
    if not callable(function):
        raise InputError(f"function: must be a function, got {type(function).__name__}. "
                         f"Pass {spec.function_name} itself, without calling it.")
    if seed is None:
        fixed = os.environ.get("MEMSTRAT_CHECK_SEED", "")
        seed = int(fixed) if fixed.isdecimal() else secrets.randbelow(10**6)
    strict = os.environ.get("MEMSTRAT_STRICT") == "1" if strict is None else strict
    asked = with_repeats([*visible_cases(spec), *random_cases(spec, seed)])
    first = call(spec, function, asked[0].args, asked[0].kwargs)
    if first.rule == "not_finished":
        line = say(texts.NOT_DONE, language, grade_id=grade_id)
        if strict:
            raise CheckFailed(line, grade_id=grade_id, rule="not_finished", text=say(
                texts.RULES["not_finished"], language), case=asked[0].name, seed=seed)
        print(line)
        return CheckResult(grade_id, False, seed, 0)
    answers = [first, *(call(spec, function, case.args, case.kwargs) for case in asked[1:])]
    verdicts = judge_all(spec, asked, answers)
    for number, verdict in enumerate(verdicts, start=1):
        if verdict.rule is not None:
            raise _failure(spec, verdict, number, len(asked), seed, language)
    line = say(texts.PASSED, language, grade_id=grade_id, count=len(asked), seed=seed)
    saved = work.save(spec, function, language)
    print(line + ("" if language == "zh" else " ") + saved)
    return CheckResult(grade_id, True, seed, len(asked))


def call(spec: ExerciseSpec, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Answer:
    """One call on copies of the arguments."""
    args, kwargs = copy.deepcopy(args), copy.deepcopy(kwargs)
    try:
        if spec.grade_id == "ex_pack_unpack":
            from memstrat.checks.adapters import observe_hooks

            value: Any = observe_hooks(function, args[0])
        else:
            value = function(*args, **kwargs)
    except NotImplementedError as error:
        return Answer(rule="not_finished", error=str(error)[:200])
    except Exception as error:  # whatever a learner's function raises is an answer to report, not ours to handle
        return Answer(rule="raised", error=f"{type(error).__name__}: {error}"[:300])
    return Answer(to_plain(value), to_plain(args), to_plain(kwargs))


def explain(verdict: Verdict, language: str, limit_s: float = 0) -> str:
    """The text of the rule that a verdict names."""
    return say(texts.RULES[verdict.rule or "other_value"], language, error=verdict.answer.error, limit=limit_s)


def show(value: Any) -> str:
    """A value for people, cut where it is long."""
    text = pprint.pformat(value, width=100, sort_dicts=False)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ..."


def show_call(verdict: Verdict) -> str:
    """The arguments of a call for people."""
    parts = [show(argument) for argument in verdict.case.args]
    return ",\n".join([*parts, *(f"{key}={show(value)}" for key, value in verdict.case.kwargs.items())])


def _failure(spec: ExerciseSpec, verdict: Verdict, number: int, count: int, seed: int, language: str) -> CheckFailed:
    text = explain(verdict, language)
    came_out = verdict.answer.error if verdict.answer.rule else show(verdict.answer.value)
    lines = [say(texts.FAILED, language, grade_id=spec.grade_id, number=number, count=count,
                 name=verdict.case.name, seed=seed)]
    for label, content in ((texts.RULE, f"{text} [{verdict.rule}]"), (texts.WENT_IN, show_call(verdict)),
                           (texts.CAME_OUT, came_out)):
        lines.append(f"{say(label, language)}: {content}")
    if verdict.answer.rule is None and verdict.rule not in ("input_mutated", "same_input_same_answer"):
        lines.append(f"{say(texts.DIFFERS, language)}: {verdict.place or say(texts.WHOLE, language)}")
    return CheckFailed("\n".join(lines), grade_id=spec.grade_id, rule=str(verdict.rule), text=text,
                       case=verdict.case.name, seed=seed)
