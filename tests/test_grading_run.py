"""Rebuilt notebooks under nbval: dead kernels, endless cells, markers and confinement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import submission_set
from submission_set import KINDS, RIGHT, make_submission

pytest.importorskip("nbval")

from memstrat.grading.batch import grade  # noqa: E402
from memstrat.grading.run import run_notebooks, write_notebook  # noqa: E402

BY_NAME = {kind.name: kind for kind in KINDS}
TROUBLE = {
    "ex_validate": RIGHT["ex_validate"] + "\nimport os\nos._exit(1)\n",
    "ex_pairs": "# NBVAL_SKIP\n" + RIGHT["ex_pairs"]
    + "\nwhile True:\n    try:\n        while True: print('x' * 1000)\n    except BaseException: pass\n",
    "ex_handoff": RIGHT["ex_handoff"],
}


def make_trouble(**cells: str) -> dict:
    notebook = make_submission(BY_NAME["right"]._replace(cells=TROUBLE | cells))
    for cell in notebook["cells"]:
        cell["metadata"]["tags"] = ["nbval-skip", "raises-exception"] if "nbgrader" in cell["metadata"] else []
    return notebook


def test_each_exercise_is_judged_on_its_own_whatever_the_others_did(tmp_path):
    notebook = write_notebook(tmp_path / "one", "trouble", make_trouble())
    results = tmp_path / "cells.jsonl"
    found = run_notebooks(tmp_path, [notebook], 1, results, cell_timeout_s=2)[notebook]
    outcomes = {name: cell["outcome"] for name, cell in found.items()}
    assert outcomes == {"imports": "passed", "ex_validate": "failed", "test_ex_validate": "failed",
                        "ex_pairs": "failed", "test_ex_pairs": "failed", "ex_handoff": "passed",
                        "test_ex_handoff": "passed", "last": "passed"}
    assert "The kernel died" in found["ex_validate"]["message"]
    assert "Timeout of 2 seconds" in found["ex_pairs"]["message"]
    lines = {line["node"].partition("::")[2]: line for line in map(json.loads, results.read_text().splitlines())}
    assert lines["ex_validate"]["duration_s"] < 2
    before = results.read_text()
    assert run_notebooks(tmp_path, [notebook], 1, results, cell_timeout_s=2)[notebook] == found
    assert results.read_text() == before  # nothing was executed again


def test_plain_pytest_hides_test_cells_and_sees_errors_that_a_cell_hid(tmp_path):
    hiding = "get_ipython().showtraceback = lambda *args, **kwargs: None\n" \
             "get_ipython().set_custom_exc((Exception,), lambda *args, **kwargs: None)\n" \
             "def validate_strategy_experiment(baseline, candidates):\n    return {}\n"
    (tmp_path / "learner.ipynb").write_text(json.dumps(make_trouble(ex_validate=hiding, ex_pairs=RIGHT["ex_pairs"])))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    report = tmp_path / "report.xml"
    root = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-p", "memstrat.grading.plugin", "-p",
         "no:xdist", "-p", "no:cacheprovider", f"--junitxml={report}", "learner.ipynb"], cwd=tmp_path, text=True,
        env=os.environ | {"PYTHONPATH": root, "MEMSTRAT_WORK": str(tmp_path / "w")}, capture_output=True)
    assert "1 failed, 7 passed" in done.stdout, done.stdout
    text = report.read_text()
    assert "learner.ipynb::test_ex_validate" in done.stdout and "memstrat.check(" not in text
    assert "\x1b" not in text and "[key_missing]" in text


@pytest.mark.slow
def test_grade_executes_and_reports_equal_bytes_with_workers(tmp_path, monkeypatch):
    release = tmp_path / "02_fair_pairs.ipynb"
    release.write_text(json.dumps(submission_set.make_release()))
    submitted = tmp_path / "in"
    submitted.mkdir()
    for name in ("right", "swapped_sign", "os_exit_in_cell", "writes_outside"):
        (submitted / f"{name}.ipynb").write_text(json.dumps(make_submission(BY_NAME[name])))
    monkeypatch.chdir(tmp_path)
    for out, workers in (("a", 2), ("b", 1)):
        results = grade([Path("in")], Path(out), [Path("02_fair_pairs.ipynb")], workers=workers)
    rows = {row["learner"]: row["run"]["02_fair_pairs"] for row in results["learners"]}
    assert rows["right"] == {"status": "ok", "num_cells": 8, "failed": {}}
    assert sorted(rows["swapped_sign"]["failed"]) == ["test_ex_pairs"]
    assert sorted(rows["os_exit_in_cell"]["failed"]) == ["ex_validate", "test_ex_validate"]
    for name in ("results.json", "gradebook.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
