"""How long grading takes: 200 submissions scored, some of them executed, beside plain nbval and nbgrader.

    python benchmarks/grading_speed.py [--nbgrader /path/nbg/bin/python]

Submissions are the learner edition of 02 with the solution's cells, every third one wrong in one
place, every tenth untouched. Scoring and execution are timed apart; execution is timed on fewer
notebooks and given per notebook. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memstrat.grading.batch import grade
from memstrat.grading.rebuild import pick_cells, read_release, rebuild, source_of
from memstrat.grading.submissions import read_cells

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "notebooks" / "02_fair_pairs.ipynb"
SOLUTION = ROOT / "notebooks" / "solutions" / "02_fair_pairs.ipynb"
NUM_WORKERS = 2


def make_submissions(folder: Path, count: int) -> Path:
    """A folder of notebooks: right, wrong in one place, or untouched."""
    release = read_release(RELEASE)
    solved = pick_cells(release, list(read_cells(json.loads(SOLUTION.read_text()))))
    folder.mkdir(parents=True)
    for number in range(count):
        picked = dict(solved) if number % 10 else dict.fromkeys(solved)
        if number % 3 == 0 and picked["ex_pairs"]:
            found = picked["ex_pairs"]
            picked["ex_pairs"] = found._replace(source=found.source.replace(" / ", " * "))
        (folder / f"learner{number:03}.ipynb").write_text(json.dumps(rebuild(release, picked)))
    return folder


def timed(work: Callable[[], Any]) -> float:
    started = time.monotonic()
    work()
    return time.monotonic() - started


def run_plain_nbval(folder: Path) -> None:
    """The same notebooks under nbval alone, with as many workers."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    subprocess.run([sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env",
                    "-p", "no:memstrat.grading.plugin", "-p", "no:cacheprovider",
                    "-n", str(NUM_WORKERS), "--dist", "loadfile", "."],
                   cwd=folder, check=False, stdout=subprocess.DEVNULL,
                   env=os.environ | {"MEMSTRAT_WORK": str(folder / "my_work"), "MEMSTRAT_STRICT": "1"})


def run_nbgrader(python: str, course: Path, submissions: Path) -> float:
    """Seconds of `nbgrader autograde` for the same notebooks."""
    kernel = course / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3",
        "language": "python"}))
    source = course / "source" / "hw"
    source.mkdir(parents=True)
    notebook = json.loads(RELEASE.read_text())
    for cell in notebook["cells"]:
        cell["source"] = source_of(cell)
    (source / RELEASE.name).write_text(json.dumps(notebook))
    for path in submissions.glob("*.ipynb"):
        place = course / "submitted" / path.stem / "hw"
        place.mkdir(parents=True)
        (place / RELEASE.name).write_bytes(path.read_bytes())
    environment = os.environ | {"JUPYTER_PATH": str(course / "jupyter"), "MEMSTRAT_STRICT": "1",
                                "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),
                                "MEMSTRAT_WORK": str(course / "my_work")}

    def nbgrader(*command: str) -> None:
        subprocess.run([python, "-m", "nbgrader", *command], cwd=course, env=environment, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    nbgrader("generate_assignment", "hw")
    return timed(lambda: nbgrader("autograde", "hw"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scored", type=int, default=200)
    parser.add_argument("--executed", type=int, default=16)
    parser.add_argument("--nbgrader", help="Python of an environment with nbgrader; left out if not given")
    parser.add_argument("--nbgrader-count", type=int, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        many = make_submissions(folder / "many", arguments.scored)
        score_s = timed(lambda: grade([many], folder / "a", [RELEASE], workers=NUM_WORKERS, execute=False))
        few = make_submissions(folder / "few", arguments.executed)
        total_s = timed(lambda: grade([few], folder / "b", [RELEASE], workers=NUM_WORKERS))
        execute_s = json.loads((folder / "b" / "timing.json").read_text())["execute_s"]
        plain_s = timed(lambda: run_plain_nbval(make_submissions(folder / "plain", arguments.executed)))
        print("| what | notebooks | seconds | seconds a notebook |\n|---|---|---|---|")
        rows = [("scored", arguments.scored, score_s), ("executed (hardened, confined)", arguments.executed, execute_s),
                ("scored and executed", arguments.executed, total_s), ("plain nbval", arguments.executed, plain_s)]
        if arguments.nbgrader:
            count = arguments.nbgrader_count
            seconds = run_nbgrader(arguments.nbgrader, folder / "course", make_submissions(folder / "nbg", count))
            rows.append(("nbgrader autograde (one worker)", count, seconds))
        for what, count, seconds in rows:
            print(f"| {what} | {count} | {seconds:.1f} | {seconds / count:.2f} |")


if __name__ == "__main__":
    main()
