"""What a batch leaves: gradebook.csv, results.json, junit.xml, and a feedback page a learner.

Equal submissions and seeds give equal bytes; times are kept elsewhere. Of a hidden case nothing is
written but the rule it shows broken.
"""

from __future__ import annotations

import csv
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from memstrat.checks import texts
from memstrat.checks.api import show, show_call
from memstrat.checks.judge import Verdict
from memstrat.checks.registry import ExerciseSpec
from memstrat.grading import feedback
from memstrat.grading.rebuild import Release
from memstrat.grading.rubric import Rubric
from memstrat.grading.score import ExerciseScore
from memstrat.grading.submissions import clean


def exercise_row(score: ExerciseScore, call_limit_s: float) -> dict[str, Any]:
    """One exercise as it stands in `results.json`."""
    return {
        "status": score.status, "points": score.points, "max_points": score.max_points, "right": score.right,
        "problem": clean(score.problem), "findings": [clean(finding) for finding in score.findings],
        "broken": [_broken_row(verdict, call_limit_s) for verdict in score.broken],
    }


def _broken_row(verdict: Verdict, call_limit_s: float) -> dict[str, Any]:
    row: dict[str, Any] = {"rule": verdict.rule, "source": verdict.case.source, "limit_s": call_limit_s}
    if verdict.case.source != "hidden":  # of a hidden case not even the learner's answer: it may hold the input
        answer = verdict.answer
        row |= {"case": verdict.case.name, "place": clean(verdict.place), "error": clean(answer.error),
                "went_in": clean(show_call(verdict)), "came_out": clean(answer.error if answer.rule
                                                                       else show(answer.value))}
    return row


def trouble_row(spec: ExerciseSpec, rubric: Rubric, problem: str) -> dict[str, Any]:
    """An exercise that could not be scored for a reason of the grader's."""
    return {"status": "not_scored", "points": 0.0, "max_points": rubric.points_of(spec.grade_id),
            "right": {}, "problem": clean(problem), "findings": [], "broken": []}


def run_row(cells: dict[str, dict[str, str]]) -> dict[str, Any]:
    """How a rebuilt notebook ran: the cells that failed, with one line each."""
    failed = {name: clean(cell["message"]).splitlines()[:3] for name, cell in cells.items()
              if cell["outcome"] == "failed"}
    status = "not_run" if not cells else "failed" if failed else "ok"
    return {"status": status, "num_cells": len(cells),
            "failed": {name: _one_line(lines) for name, lines in sorted(failed.items())}}


def _one_line(lines: list[str]) -> str:
    text = re.sub(r"0x[0-9a-fA-F]+", "0x...", " ".join(line.strip() for line in lines))
    return re.sub(r"kernel-\w+", "kernel-...", re.sub(r"\(?seed \d+\)?", "(seed ...)", text))[:300]


def results(rows: list[dict[str, Any]], releases: list[Release], rubric: Rubric) -> dict[str, Any]:
    """The content of `results.json`."""
    columns = [spec.grade_id for release in releases for spec in release.specs]
    return {"schema_version": "memstrat-grades/v1", "releases": [release.name for release in releases],
            "exercises": columns, "rubric": rubric.public(), "learners": rows}


def write_all(out: Path, content: dict[str, Any], rows: list[dict[str, Any]], rubric: Rubric, language: str) -> None:
    """Write every report, each whole or not at all."""
    _write(out / "results.json", json.dumps(content, ensure_ascii=False, indent=1, sort_keys=True) + "\n")
    _write(out / "gradebook.csv", gradebook(content))
    _write(out / "junit.xml", junit(content))
    folder = out / "feedback"
    folder.mkdir(exist_ok=True)
    taken: set[str] = set()
    for row in rows:
        name = re.sub(r"[^\w.-]", "_", row["learner"])[:80] or "learner"
        while name.lower() in taken or name.startswith("."):
            name = f"_{name}"
        taken.add(name.lower())
        _write(folder / f"{name}.html", feedback.page(row, content, rubric, language))


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(path.suffix + ".tmp")
    partial.write_text(text, encoding="utf-8", newline="")
    partial.replace(path)


def _safe_cell(text: str) -> str:
    """A spreadsheet must not take a name for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" and text else text


def gradebook(content: dict[str, Any]) -> str:
    """A row a learner, a column an exercise."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    columns = content["exercises"]
    writer.writerow(["learner", *columns, "points", "max_points", "status", "records", "findings", "reason"])
    for row in content["learners"]:
        exercises = row["exercises"]
        records = row["records"]
        findings = sum(map(len, [row["notes"], records["findings"], *(one["findings"] for one in exercises.values())]))
        state = "none" if not records["files"] else f"{len(records['errors'])} errors" if records["errors"] else "ok"
        writer.writerow([_safe_cell(clean(row["learner"])), *(f"{exercises[name]['points']:g}" for name in columns),
                         f"{row['points']:g}", f"{row['max_points']:g}", row["status"], state, findings,
                         _safe_cell(clean(row["reason"] or ""))])
    return buffer.getvalue()


def junit(content: dict[str, Any]) -> str:
    """JUnit XML: a suite a learner, a case an exercise. Failures hold the rule, never a case."""
    root = ET.Element("testsuites")
    for row in content["learners"]:
        exercises = row["exercises"]
        failed = [name for name, one in exercises.items() if one["status"] != "passed"]
        suite = ET.SubElement(root, "testsuite", name=clean(row["learner"]), tests=str(len(exercises)),
                              failures=str(len(failed)), errors="0", skipped="0")
        for name, one in exercises.items():
            case = ET.SubElement(suite, "testcase", classname=clean(row["learner"]), name=name)
            if name in failed:
                rules = [texts.RULES[broken["rule"]].en.format(error="an exception", limit=broken["limit_s"])
                         for broken in one["broken"]]
                ET.SubElement(case, "failure", message=f"{one['status']}: {one['points']:g} of {one['max_points']:g}"
                              ).text = "\n".join(rules) or one["problem"]
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
