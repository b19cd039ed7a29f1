"""`grade`, `check-submission`, `rubric` and `audit`: what an instructor and a learner run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

Release = Annotated[list[Path] | None, typer.Option(
    "--release", help="Notebook handed out, learner edition; notebooks/ of the checkout if not given.")]
RubricFile = Annotated[Path | None, typer.Option("--rubric", help="Points and seeds; see memstrat rubric.")]
Language = Annotated[str, typer.Option("--language", help="en or zh.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def grade(
    submissions: Annotated[list[Path], typer.Argument(help="A folder, a zip, or single notebooks.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the gradebook, results and feedback.")],
    release: Release = None,
    rubric: RubricFile = None,
    ids: Annotated[Path | None, typer.Option("--ids", help="CSV with the columns file and learner.")] = None,
    workers: Annotated[int, typer.Option("--workers", "-n", help="Processes side by side.")] = 2,
    execute: Annotated[bool, typer.Option(
        "--execute/--no-execute", help="Run the rebuilt notebooks under nbval as well.")] = True,
    language: Language = "en",
) -> None:
    """Grade submissions: gradebook.csv, results.json, junit.xml and a feedback page a learner."""
    from memstrat.grading.batch import grade as grade_batch

    results = grade_batch(submissions, out, release or default_releases(), rubric, ids, workers, execute,
                          language, tell=_tell)
    learners = results["learners"]
    unreadable = [row["learner"] for row in learners if row["status"] != "graded"]
    print(f"{len(learners)} learners graded; gradebook: {out / 'gradebook.csv'}")
    if unreadable:
        print(f"could not be read, see the gradebook: {', '.join(unreadable)}")
    if any(run["status"] == "not_run" for row in learners for run in row.get("run", {}).values()):
        print(f"careful: notebooks could not be executed, see {out / 'rebuilt' / 'pytest.log'}. "
              "Scores do not depend on it.")
    guards = json.loads((out / "timing.json").read_text(encoding="utf-8"))["guards"]
    lacking = sorted(name for name, in_force in guards.items() if not in_force)
    if lacking:
        print(f"careful: this system could not confine {', '.join(lacking)}; see docs/grading.md for a container.")
    if not results["rubric"]["hidden_secret_given"]:
        print("careful: no rubric with a secret was given, so that anyone can make the hidden cases. "
              "Run memstrat rubric FILE once and pass it with --rubric.")


def check_submission(
    file: Annotated[Path, typer.Argument(help="Your notebook.")],
    release: Release = None,
    rubric: RubricFile = None,
    language: Language = "en",
    as_json: AsJson = False,
) -> None:
    """Check a notebook before handing it in: the grade's rules, visible and fresh random cases."""
    from memstrat.grading.precheck import check_file, describe

    result = check_file(file, release or default_releases(), rubric)
    print(json.dumps(result, indent=2, ensure_ascii=False) if as_json else describe(result, language))
    if not result["passed"]:
        raise typer.Exit(1)


def rubric(
    file: Annotated[Path, typer.Argument(help="Where to write it; keep it from learners.")],
    title: Annotated[str, typer.Option("--title", help="Shown in the reports.")] = "memstrat exercises",
    release: Annotated[str, typer.Option("--release", help="Name of this release; seeds its random cases.")] = "r1",
) -> None:
    """Write a rubric: points an exercise, and a fresh secret for the hidden cases."""
    from memstrat.grading.rubric import write_rubric

    print(f"rubric: {write_rubric(file, title, release)}. Keep it from learners; give it with --rubric.")


def audit(
    path: Annotated[Path, typer.Argument(help="A record, or a folder with records.")],
    estimate: Annotated[bool, typer.Option(
        "--estimate", help="Compare peaks with the predictor's as well; loads torch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Recompute what records derive, check their hashes, and list figures that need a person's look."""
    from memstrat.grading.audit import audit as audit_records

    result = audit_records(path, predict=estimate)
    if as_json:
        print(json.dumps(result.as_dict(), indent=2, ensure_ascii=False))
    else:
        for remark in result.remarks:
            print(f"{remark.level}: {remark.file}: {remark.what}")
        findings = len(result.remarks) - len(result.errors)
        print(f"{len(result.files)} files, {len(result.errors)} errors, {findings} findings")
    if result.errors:
        raise typer.Exit(1)


def default_releases() -> list[Path]:
    """The checkout's learner editions that hold exercises."""
    from memstrat.checks import EXERCISES
    from memstrat.errors import InputError

    folders = [folder / "notebooks" for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2])]
    names = dict.fromkeys(spec.notebook for spec in EXERCISES.values())
    for folder in folders:
        found = [path for name in names if (path := folder / f"{name}.ipynb").exists()]
        if found:
            return found
    raise InputError("release: must be given where no checkout with notebooks/ is near, got none. "
                     "Pass --release NOTEBOOK.")


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(grade)
    app.command("check-submission")(check_submission)
    app.command()(rubric)
    app.command()(audit)


def _tell(step: str, done: int, total: int) -> None:
    if sys.stderr.isatty() or done == total:
        print(f"\r{step}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
