"""The grading commands as a person types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import submission_set
from submission_set import KINDS, make_submission
from typer.testing import CliRunner

from memstrat.cli import app

BY_NAME = {kind.name: kind for kind in KINDS}
REFERENCE = Path(__file__).parents[1] / "memstrat" / "reference"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "release.ipynb").write_text(json.dumps(submission_set.make_release()))
    (tmp_path / "in").mkdir()
    for name in ("right", "swapped_sign"):
        (tmp_path / "in" / f"{name}.ipynb").write_text(json.dumps(make_submission(BY_NAME[name])))
    (tmp_path / "in" / "broken.ipynb").write_text("{")
    return tmp_path


def run(*words: object):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_rubric_then_grade_writes_a_gradebook(folder):
    assert run("rubric", folder / "rubric.toml", "--release", "autumn").exit_code == 0
    done = run("grade", folder / "in", "--out", folder / "out", "--release", folder / "release.ipynb",
               "--rubric", folder / "rubric.toml", "--no-execute")
    assert done.exit_code == 0 and "3 learners graded" in done.output and "could not be read" in done.output
    assert "no rubric with a secret" not in done.output
    lines = (folder / "out" / "gradebook.csv").read_text().splitlines()
    assert lines[0] == "learner,ex_validate,ex_pairs,ex_handoff,points,max_points,status,records,findings,reason"
    assert lines[2] == "right,4,4,2,10,10,graded,none,0,"


def test_grade_without_a_rubric_says_that_hidden_cases_are_public(folder):
    done = run("grade", folder / "in", "--out", folder / "out", "--release", folder / "release.ipynb", "--no-execute")
    assert "no rubric with a secret was given" in done.output


def test_check_submission_ends_with_0_for_a_right_notebook_and_1_for_a_wrong_one(folder):
    good = run("check-submission", folder / "in" / "right.ipynb", "--release", folder / "release.ipynb")
    assert good.exit_code == 0 and "hidden cases" in good.output
    wrong = run("check-submission", folder / "in" / "swapped_sign.ipynb", "--release", folder / "release.ipynb",
                "--json")
    assert wrong.exit_code == 1
    assert json.loads(wrong.output)["exercises"]["ex_pairs"]["broken"][0]["rule"] == "saving_sign_swapped"


def test_audit_ends_with_1_where_a_number_does_not_hold(tmp_path):
    record = json.loads((REFERENCE / "tiny_g0.json").read_text())
    path = tmp_path / f"76_cpu_rehearsal_memory_{record['run_label']}.json"
    path.write_text(json.dumps(record))
    good = run("audit", path)
    assert good.exit_code == 0 and "1 files, 0 errors" in good.output
    record["summary"]["memory_saving_mb"] = 9999.0
    path.write_text(json.dumps(record))
    edited = run("audit", path)
    assert edited.exit_code == 1 and "summary.memory_saving_mb" in edited.output
