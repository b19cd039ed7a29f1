"""What nbgrader gives the submissions whose fair grades `tests/submission_set.py` writes down.

Needs an environment of its own with nbgrader (337 MB, not a requirement of this project):

    python -m venv /path/nbg && /path/nbg/bin/pip install nbgrader
    python benchmarks/grading_nbgrader.py --nbgrader /path/nbg/bin/python

nbgrader runs the same test cells (`memstrat.check`) in kernels of the Python that runs this script.
It confines nothing, and the set holds submissions that fork without end, kill what started them and
write into this package: run it on a machine or in a container that can be thrown away, or leave those
kinds out with --only. What `writes_outside` leaves in the package is removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import submission_set  # noqa: E402
from submission_set import IDS, KINDS, PART, POINTS, Kind  # noqa: E402

from memstrat.grading.batch import grade  # noqa: E402

PREFIX = os.environ.get("RUN_WITH", "").split()  # a command that runs each step, such as nice
READ_GRADES = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    grades = {}
    for one in book.assignment_submissions("hw"):
        grades[one.student.id] = {grade.name: grade.score for notebook in one.notebooks for grade in notebook.grades}
    print(json.dumps(grades))
"""


def run_nbgrader(python: str, course: Path, cell_timeout_s: int, kinds: list[Kind]) -> dict[str, dict[str, float]]:
    """Autograde the set; the points by learner and test cell."""
    kernel = course / "jupyter" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text(json.dumps({
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], "display_name": "Python 3",
        "language": "python"}))
    source = course / "source" / "hw"
    source.mkdir(parents=True)
    release = submission_set.make_release()
    (source / "02_fair_pairs.ipynb").write_text(json.dumps(release))
    for kind in kinds:
        place = course / "submitted" / kind.name / "hw"
        place.mkdir(parents=True)
        (place / "02_fair_pairs.ipynb").write_text(json.dumps(submission_set.make_submission(kind)))
    environment = os.environ | {"JUPYTER_PATH": str(course / "jupyter"), "MEMSTRAT_STRICT": "1", "PYTHONPATH": "",
                                "PATH": os.pathsep.join([str(Path(python).parent), os.environ["PATH"]]),
                                "MEMSTRAT_WORK": str(course / "my_work")}
    options = [f"--ExecutePreprocessor.timeout={cell_timeout_s}", "--Execute.timeout=" + str(cell_timeout_s)]
    one_by_one = [["autograde", "hw", f"--student={kind.name}", *options] for kind in kinds]
    for command in (["generate_assignment", "hw"], *one_by_one):  # one that hangs must not lose the others
        subprocess.run([*PREFIX, python, "-m", "nbgrader", *command], cwd=course, env=environment, check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (ROOT / "memstrat" / "evil.py").unlink(missing_ok=True)
    text = subprocess.run([python, "-c", READ_GRADES], cwd=course, env=environment, check=True, capture_output=True,
                          text=True).stdout
    return json.loads(text)


def is_fair(expected: object, share: float) -> bool:
    return 0 < share < 1 if expected == PART else share == expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nbgrader", required=True, help="Python of the environment with nbgrader")
    parser.add_argument("--cell-timeout", type=int, default=10)
    parser.add_argument("--only", help="comma-separated kinds; all if not given")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if not arguments.only or kind.name in arguments.only.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        release = submission_set.write_set(folder / "ours")
        results = grade([folder / "ours" / "submitted"], folder / "out", [release], execute=False)
        ours = {row["learner"]: row["exercises"] for row in results["learners"]}
        started = time.monotonic()
        theirs = run_nbgrader(arguments.nbgrader, folder / "course", arguments.cell_timeout, kinds)
        took = time.monotonic() - started
    print("| submission | fair | memstrat | nbgrader |\n|---|---|---|---|")
    fair = {"memstrat": 0, "nbgrader": 0}
    for kind in kinds:
        shares = [ours[kind.name][one]["points"] / POINTS[one] for one in IDS]
        other = [theirs.get(kind.name, {}).get(f"test_{one}", 0.0) / POINTS[one] for one in IDS]
        for name, found in (("memstrat", shares), ("nbgrader", other)):
            # nbgrader has no partial credit within a test cell: nothing is fair where part is due
            fair[name] += all(is_fair(want, share) or (name == "nbgrader" and want == PART and share == 0)
                              for want, share in zip(kind.grades, found, strict=True))
        rows = [" ".join(f"{share:g}" if isinstance(share, (int, float)) else share for share in one)
                for one in (kind.grades, [round(share, 2) for share in shares], other)]
        print(f"| {kind.name} | " + " | ".join(rows) + " |")
    print(f"\nfair: memstrat {fair['memstrat']} of {len(kinds)}, nbgrader {fair['nbgrader']} of {len(kinds)}; "
          f"nbgrader took {took:.0f} s")


if __name__ == "__main__":
    main()
