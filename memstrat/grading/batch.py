"""A batch: collect, rebuild, run, score, report. One learner's trouble is that learner's row."""

from __future__ import annotations

import hashlib
import json
import queue
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import memstrat
from memstrat.checks import EXERCISES
from memstrat.errors import InputError
from memstrat.grading import report
from memstrat.grading.audit import Audit, audit, kind_of
from memstrat.grading.processes import ChildServer, Limits
from memstrat.grading.rebuild import Picked, Release, pick_cells, read_release, rebuild
from memstrat.grading.rubric import Rubric, read_rubric
from memstrat.grading.run import run_notebooks, write_notebook
from memstrat.grading.score import score_exercise
from memstrat.grading.submissions import Submission, find_submissions
from memstrat.workload import canonical_json


class Batch(NamedTuple):
    """What a grading run was asked for."""

    releases: list[Release]
    rubric: Rubric
    out: Path
    workers: int
    denied: tuple[str, ...]
    limits: Limits | None
    guards: dict[str, bool]  # filled in: which protections were in force


def grade(
    places: list[Path],
    out: Path,
    release_paths: list[Path],
    rubric_path: Path | None = None,
    ids_path: Path | None = None,
    workers: int = 2,
    execute: bool = True,
    language: str = "en",
    limits: Limits | None = None,
    tell: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> dict[str, Any]:
    """Grade submissions and write the reports below `out`; what was finished before is kept.

    Args:
        places: folders, zips and notebooks.
        out: folder of the reports; made if absent.
        release_paths: the learner editions handed out.
        rubric_path: points and seeds; without it the default and no secret.
        ids_path: CSV `file,learner`.
        workers: processes side by side.
        execute: run the rebuilt notebooks under nbval too.
        language: of the feedback pages, `en` or `zh`.
        limits: of each exercise; the defaults of `processes` if not given.
        tell: called with a step's name, how many are done and how many there are.

    Returns:
        The content of `results.json`.

    Raises:
        InputError: nothing to grade, or a release or rubric that cannot be read.
    """
    out = out.resolve()  # pytest runs elsewhere
    releases = [read_release(path) for path in release_paths]
    submissions = find_submissions(places, ids_path)
    if not submissions:
        raise InputError("submissions: must hold at least one file, got none. Check the folder or zip.")
    denied = tuple(str(path.resolve()) for path in (out, *places, *([rubric_path] if rubric_path else [])))
    batch = Batch(releases, read_rubric(rubric_path), out, max(1, workers), denied, limits, {})
    (out / "state").mkdir(parents=True, exist_ok=True)
    by_learner: dict[str, list[Submission]] = {}
    for one in submissions:
        by_learner.setdefault(one.learner, []).append(one)
    started = time.monotonic()
    rows = score_all(batch, by_learner, tell)
    scored_s = time.monotonic() - started
    if execute:
        _execute_all(batch, by_learner, rows, tell)
    results = report.results(rows, releases, batch.rubric)
    report.write_all(out, results, rows, batch.rubric, language)
    times = {"submissions": len(submissions), "score_s": round(scored_s, 2),
             "execute_s": round(time.monotonic() - started - scored_s, 2), "guards": batch.guards}
    (out / "timing.json").write_text(json.dumps(times) + "\n", encoding="utf-8")
    return results


def score_all(batch: Batch, by_learner: dict[str, list[Submission]],
              tell: Callable[[str, int, int], None] = lambda step, done, total: None) -> list[dict[str, Any]]:
    """One row a learner, in the learners' order. Rows of an unchanged submission are read back."""
    servers: queue.SimpleQueue[dict[bool, ChildServer]] = queue.SimpleQueue()
    made = [{} for _ in range(batch.workers)]  # type: list[dict[bool, ChildServer]]
    for one in made:
        servers.put(one)

    def work(item: tuple[str, list[Submission]]) -> dict[str, Any]:
        mine = servers.get()
        try:
            return _row(batch, mine, *item)
        finally:
            servers.put(mine)

    rows = []
    try:
        with ThreadPoolExecutor(batch.workers) as pool:
            for row in pool.map(work, by_learner.items()):
                rows.append(row)
                tell("score", len(rows), len(by_learner))
    finally:
        for server in (server for one in made for server in one.values()):
            batch.guards.update(server.guards)
            server.close()
    return rows


def _row(batch: Batch, servers: dict[bool, ChildServer], learner: str, files: list[Submission]) -> dict[str, Any]:
    state = batch.out / "state" / f"{hashlib.sha256(learner.encode()).hexdigest()[:24]}.json"
    fingerprint = _fingerprint(batch, files)
    if state.exists():
        try:
            kept = json.loads(state.read_text(encoding="utf-8"))
            if kept["fingerprint"] == fingerprint:
                return kept["row"]
        except (ValueError, KeyError, TypeError):
            pass  # cut short by a stop: score it again
    row = _score_learner(batch, servers, learner, files)
    partial = state.with_suffix(".tmp")
    partial.write_text(json.dumps({"fingerprint": fingerprint, "row": row}, ensure_ascii=False), encoding="utf-8")
    partial.replace(state)
    return row


def _score_learner(batch: Batch, servers: dict[bool, ChildServer], learner: str,
                   files: list[Submission]) -> dict[str, Any]:
    exercises: dict[str, Any] = {}
    notes: list[str] = []
    for release in batch.releases:
        picked = pick(release, files, notes)
        for spec in release.specs:
            torch = spec.kind == "torch"
            if torch not in servers:
                servers[torch] = ChildServer(torch=torch, denied=batch.denied, limits=batch.limits)
            try:
                score = score_exercise(servers[torch], spec, release, picked, batch.rubric)
                exercises[spec.grade_id] = report.exercise_row(score, servers[torch].limits.call_s)
            except Exception as error:  # what no rule foresaw is this learner's row, never the end of the batch
                servers.pop(torch).close()
                exercises[spec.grade_id] = report.trouble_row(spec, batch.rubric, f"{type(error).__name__}: {error}")
    readable = [one for one in files if one.reason is None]
    records = audit_records(files)
    extra = batch.rubric.records_points
    earned = extra if records["kinds"] == ["decision", "g0", "g1"] and not records["errors"] else 0.0
    return {
        "learner": learner,
        "files": [{"name": one.name, "sha256": one.sha256, "reason": one.reason} for one in files],
        "status": "graded" if readable else "unreadable",
        "reason": None if readable else "; ".join(f"{one.name}: {one.reason}" for one in files),
        "exercises": exercises, "notes": notes, "records": {**records, "points": earned},
        "points": round(sum(one["points"] for one in exercises.values()) + earned, 2),
        "max_points": round(sum(one["max_points"] for one in exercises.values()) + extra, 2),
    }


def audit_records(files: list[Submission]) -> dict[str, Any]:
    """The audit of the records among a learner's files, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="records-") as folder:
        results = Path(folder) / "benchmarks" / "results"
        results.mkdir(parents=True)
        for one in files:
            if one.record is not None:
                (results / Path(one.name).name).write_bytes(one.record)
        known = sorted({kind[2] for path in results.iterdir() if (kind := kind_of(path.name))})
        found = audit(results) if known else Audit([], [])
    told = {level: [f"{one.file}: {report.clean(one.what)}" for one in found.remarks if one.level == level]
            for level in ("error", "finding")}
    return {"files": found.files, "kinds": [kind for kind in known if kind in ("g0", "g1", "decision")],
            "errors": told["error"], "findings": told["finding"]}


def pick(release: Release, files: list[Submission], notes: list[str]) -> dict[str, Picked | None]:
    """The learner's cells for one release, from the file that holds most of its exercises."""
    best: dict[str, Picked | None] = dict.fromkeys(release.stubs)
    for one in files:
        if one.record is not None or one.reason is not None:
            continue
        picked = pick_cells(release, one.cells)
        if sum(found is not None for found in picked.values()) > sum(found is not None for found in best.values()):
            if any(best.values()):
                notes.append(f"more than one file holds exercises of {release.name}; {one.name} is graded")
            best = picked
    return best


def _fingerprint(batch: Batch, files: list[Submission]) -> str:
    facts = [memstrat.__version__, [[one.name, one.sha256] for one in files], batch.rubric.model_dump(),
             [[release.name, release.stubs, release.prelude] for release in batch.releases], list(EXERCISES)]
    return hashlib.sha256(canonical_json(facts).encode()).hexdigest()


def _execute_all(batch: Batch, by_learner: dict[str, list[Submission]], rows: list[dict[str, Any]],
                 tell: Callable[[str, int, int], None]) -> None:
    """Run every rebuilt notebook and put what happened into the rows."""
    folder = batch.out / "rebuilt"
    places: dict[Path, tuple[dict[str, Any], str]] = {}
    for row, files in zip(rows, by_learner.values(), strict=True):
        row["run"] = {}
        for release in batch.releases:
            picked = pick(release, files, [])
            if any(picked.values()):
                digest = hashlib.sha256((row["learner"] + _fingerprint(batch, files)).encode()).hexdigest()[:16]
                path = write_notebook(folder / digest, release.name, rebuild(release, picked))
                places[path] = (row, release.name)
    tell("execute", 0, len(places))
    outcomes = run_notebooks(folder, list(places), batch.workers, batch.out / "cells.jsonl")
    for path, (row, name) in places.items():
        row["run"][name] = report.run_row(outcomes[path])
    tell("execute", len(places), len(places))
