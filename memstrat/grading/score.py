"""Points for one submission: each exercise in children of its own, compared here.

Visible, random and hidden cases count alike. An exercise that crashes or hangs loses the case it
did so in; the rest is asked in a fresh child, twice at most.
"""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

from memstrat.checks.cases import Case
from memstrat.checks.expected import expected_answer
from memstrat.checks.judge import Answer, Verdict, judge_all, random_cases, visible_cases, with_repeats
from memstrat.checks.registry import EXERCISES, ExerciseSpec
from memstrat.checks.wire import to_plain
from memstrat.grading.processes import ChildServer, JobResult
from memstrat.grading.rebuild import Picked, Release, sources_for
from memstrat.grading.rubric import Rubric

MAX_RESTARTS = 2
SOURCES = ("visible", "random", "hidden")


class ExerciseScore(NamedTuple):
    """One exercise of one learner. `broken` holds the first verdict for each rule broken."""

    grade_id: str
    status: str  # passed, partial, wrong, not_finished, missing, not_loaded
    points: float
    max_points: float
    right: dict[str, list[int]]  # source: [right, asked]
    broken: list[Verdict]
    problem: str
    findings: list[str]


class Material(NamedTuple):
    """The cases of an exercise with their right answers, made once a batch."""

    cases: list[Case]
    texts: list[str]  # JSON of each case's arguments
    expected: list[Any]


@functools.lru_cache(maxsize=64)
def _material(grade_id: str, release: str, secret: str, num_random: int, num_hidden: int) -> Material:
    spec = EXERCISES[grade_id]
    cases = with_repeats([*visible_cases(spec), *random_cases(spec, release, num_random),
                          *random_cases(spec, f"{release}:{secret}", num_hidden, source="hidden")])
    return Material(cases, [json.dumps([case.args, case.kwargs]) for case in cases],
                    [expected_answer(spec, case) for case in cases])


def material(grade_id: str, rubric: Rubric) -> Material:
    return _material(grade_id, rubric.release, rubric.hidden_secret, rubric.random_cases, rubric.hidden_cases)


def score_exercise(server: ChildServer, spec: ExerciseSpec, release: Release, picked: dict[str, Picked | None],
                   rubric: Rubric) -> ExerciseScore:
    """Score one exercise of one submission."""
    own = picked.get(spec.grade_id)
    maximum = rubric.points_of(spec.grade_id)
    asked, texts, expected = material(spec.grade_id, rubric)
    nothing = {source: [0, sum(case.source == source for case in asked)] for source in SOURCES}
    if own is None:
        return ExerciseScore(spec.grade_id, "missing", 0.0, maximum, nothing, [], "", [])
    if own.source.strip() == release.stubs[spec.grade_id].strip():
        return ExerciseScore(spec.grade_id, "not_finished", 0.0, maximum, nothing, [], "", [])
    answers, job = _ask(server, sources_for(release, picked, spec.grade_id), spec, texts)
    findings = sorted({*own.notes, *job.findings})
    if job.loaded is not True:
        status = "not_loaded"
        problem = job.problem or f"{spec.function_name} is not defined"
        if job.loaded is None:
            problem = f"the cell did not finish ({job.stopped})"
        return ExerciseScore(spec.grade_id, status, 0.0, maximum, nothing, [], problem, findings)
    verdicts = judge_all(spec, asked, answers, expected)
    right = {source: [sum(v.rule is None for v in verdicts if v.case.source == source), total]
             for source, (_, total) in nothing.items()}
    broken: dict[str, Verdict] = {}
    for verdict in verdicts:
        if verdict.rule is not None:
            broken.setdefault(verdict.rule, verdict)
    num_right = sum(v.rule is None for v in verdicts)
    points = rubric.earned(spec.grade_id, num_right, len(verdicts))
    status = "passed" if num_right == len(verdicts) else "not_finished" if answers[0].rule == "not_finished" \
        else "partial" if points else "wrong"
    return ExerciseScore(spec.grade_id, status, points, maximum, right, list(broken.values()), job.problem, findings)


def _ask(server: ChildServer, sources: list[tuple[str, str]], spec: ExerciseSpec,
         texts: list[str]) -> tuple[list[Answer], JobResult]:
    """All answers, asking on in a fresh child after one that ended early."""
    answers: dict[int, Answer] = {}
    findings: set[str] = set()
    first, result, stopped = 0, None, None
    for _ in range(MAX_RESTARTS + 1):
        result = server.run(sources, spec.function_name, texts[first:], first,
                            adapter=spec.grade_id == "ex_pack_unpack")
        findings |= set(result.findings)
        answers |= {number: _answer(raw) for number, raw in result.answers.items() if first <= number < len(texts)}
        stopped = result.stopped
        if stopped is None or result.loaded is not True:
            break
        first = max(answers, default=first - 1) + 1
        if first >= len(texts):
            break
        answers[first] = _stopped(result, server.limits.call_s)
        first += 1
        if first >= len(texts):
            break
    assert result is not None
    rest = _stopped(result, server.limits.call_s)
    return [answers.get(number, rest) for number in range(len(texts))], result._replace(findings=sorted(findings))


def _stopped(result: JobResult, limit_s: float) -> Answer:
    reasons = {"timed_out": f"{limit_s:g}", "process_ended": f"exit code {result.exit_code}", "too_much_output": ""}
    rule = result.stopped or "process_ended"
    return Answer(rule=rule, error=reasons[rule])


def _answer(raw: dict[str, Any]) -> Answer:
    if raw.get("rule") is not None:
        rule = str(raw["rule"])
        return Answer(rule=rule if rule in ("raised", "not_finished") else "raised", error=str(raw.get("error", "")))
    return Answer(*(to_plain(raw.get(key)) for key in ("value", "args", "kwargs")))  # the child may send anything
