"""Run a notebook under nbval in a process of its own, away from the checkout. Shared by the notebook tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_of(cell: dict[str, Any]) -> str:
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def run_under_nbval(notebook: dict[str, Any], folder: Path, *, strict: bool, **environment: str) -> dict[str, str]:
    """Outcome by cell id: `passed`, or the first line of what went wrong.

    Results and saved work go below `folder`: nothing of a test reaches the checkout.
    """
    path = folder / "notebook.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n")
    variables = os.environ | {"MEMSTRAT_WORK": str(folder / "my_work"), "MEMSTRAT_RESULTS_DIR": str(folder / "results"),
                              "MEMSTRAT_STRICT": "1" if strict else "0", "PYTHONPATH": str(ROOT),
                              "OMP_WAIT_POLICY": "passive"} | environment
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=300",
               "-p", "no:cacheprovider", "-p", "no:xdist", "-q", f"--junitxml={report}", path.name]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    cases = ET.parse(report).getroot().iter("testcase")
    outcomes = {}
    for cell, case in zip(code_cells(notebook), cases, strict=True):
        problem = next((item for item in case if item.tag in ("failure", "error", "skipped")), None)
        text = "" if problem is None else f"{problem.get('message', '')}\n{problem.text or ''}"
        outcomes[cell["id"]] = "passed" if problem is None else text.strip()
    return outcomes
