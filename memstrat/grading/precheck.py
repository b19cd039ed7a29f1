"""What a learner runs before handing in: the grade's own scoring with fresh cases, and without the hidden ones."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from memstrat.checks.texts import RULES, Text, choose_language, say
from memstrat.grading import report
from memstrat.grading.feedback import STATUSES
from memstrat.grading.processes import ChildServer
from memstrat.grading.rebuild import Release, pick_cells, read_release
from memstrat.grading.rubric import read_rubric
from memstrat.grading.score import score_exercise
from memstrat.grading.submissions import find_submissions

LINE = Text("{name}: {status}", "{name}：{status}")
WILL_ADD = Text("The grade adds {count} hidden cases an exercise.", "正式评分时每个练习还会加入 {count} 个隐藏用例。")
UNREADABLE = Text("{file}: {reason}", "{file}：{reason}")


def check_file(path: Path, release_paths: list[Path], rubric_path: Path | None = None) -> dict[str, Any]:
    """Check one notebook against the release it belongs to.

    Returns:
        `file`, `reason` (why it could not be read), `passed`, `seed`, `hidden_cases`, `exercises`.
    """
    submission = find_submissions([path])[0]
    rubric = read_rubric(rubric_path)
    seed = secrets.token_hex(4)
    mine = rubric.model_copy(update={"release": seed, "hidden_cases": 0})
    exercises: dict[str, Any] = {}
    if submission.reason is None:
        release = _release_of([read_release(one) for one in release_paths], submission.cells)
        picked = pick_cells(release, submission.cells)
        servers: dict[bool, ChildServer] = {}
        try:
            for spec in release.specs:
                torch = spec.kind == "torch"
                if torch not in servers:
                    servers[torch] = ChildServer(torch=torch)
                score = score_exercise(servers[torch], spec, release, picked, mine)
                exercises[spec.grade_id] = report.exercise_row(score, servers[torch].limits.call_s)
        finally:
            for server in servers.values():
                server.close()
    return {"file": path.name, "reason": submission.reason, "seed": seed, "hidden_cases": rubric.hidden_cases,
            "passed": bool(exercises) and all(one["status"] == "passed" for one in exercises.values()),
            "exercises": exercises}


def _release_of(releases: list[Release], cells: list[Any]) -> Release:
    """The release of which the notebook holds most exercises."""
    return max(releases, key=lambda one: sum(found is not None for found in pick_cells(one, cells).values()))


def describe(result: dict[str, Any], language: str) -> str:
    """The result for people."""
    language = choose_language(language)
    if result["reason"]:
        return say(UNREADABLE, language, file=result["file"], reason=result["reason"])
    lines = []
    for name, one in result["exercises"].items():
        lines.append(say(LINE, language, name=name, status=say(STATUSES[one["status"]], language)))
        if one["problem"]:
            lines.append(f"  {one['problem']}")
        for broken in one["broken"]:
            rule = say(RULES[broken["rule"]], language, error=broken["error"], limit=f"{broken['limit_s']:g}")
            lines.append(f"  - {rule} ({broken['case']})")
    lines.append(say(WILL_ADD, language, count=result["hidden_cases"]))
    return "\n".join(lines)
