"""The real nbgrader releases and grades the notebook of the core exercises. Development only.

nbgrader is no dependency of ours: install it beside the package (it brings an older Jupyter) and run
this test there; it is skipped elsewhere.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from notebook_runs import NOTEBOOKS, ROOT

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(not shutil.which("nbgrader"), reason="nbgrader is not installed (it need not be)")]
NAME = "02_fair_pairs.ipynb"


def put(edition: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(edition, folder / NAME)


def test_nbgrader_gives_full_points_to_the_solution_and_none_to_the_untouched_stubs(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text('get_config().CourseDirectory.course_id = "course"\n')
    put(NOTEBOOKS / "solutions" / NAME, tmp_path / "source" / "fair")
    put(NOTEBOOKS / "solutions" / NAME, tmp_path / "submitted" / "solved" / "fair")
    put(NOTEBOOKS / NAME, tmp_path / "submitted" / "untouched" / "fair")
    environment = os.environ | {"MEMSTRAT_STRICT": "1", "MEMSTRAT_WORK": str(tmp_path / "my_work"),
                                "PYTHONPATH": str(ROOT)}
    for command in (["generate_assignment", "fair", "--create"], ["autograde", "fair", "--create"], ["export"]):
        done = subprocess.run(["nbgrader", *command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    with open(tmp_path / "grades.csv", newline="") as file:
        scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    assert scores == {"solved": (10.0, 10.0), "untouched": (0.0, 10.0)}
