"""Execute rebuilt notebooks under nbval, all of a batch in one pytest run. Earns no points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from memstrat.grading.rebuild import source_of

CELL_TIMEOUT_S = 30


def write_notebook(folder: Path, name: str, notebook: dict[str, Any]) -> Path:
    """Write a rebuilt notebook where pytest will find it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")  # ASCII: a source may hold lone surrogates
    return path


def run_notebooks(folder: Path, notebooks: list[Path], workers: int, results: Path,
                  cell_timeout_s: int = CELL_TIMEOUT_S) -> dict[Path, dict[str, dict[str, str]]]:
    """Execute notebooks below `folder`; finished ones are not executed again.

    Args:
        folder: pytest's root; all notebooks lie below it.
        notebooks: what to execute.
        workers: pytest-xdist workers; 1 runs without xdist.
        results: JSON lines, appended as cells finish.
        cell_timeout_s: seconds a cell may take.

    Returns:
        For each notebook {cell name: {"outcome", "message"}}.
    """
    done = read_results(results, folder)
    waiting = [path for path in notebooks if not _is_complete(path, done.get(path, {}))]
    if waiting:
        (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (folder / "waiting.txt").write_text("\n".join(str(path) for path in waiting) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "--nbval-lax", "--nbval-current-env", "--memstrat-guard",
                   f"--memstrat-results={results}", f"--nbval-cell-timeout={cell_timeout_s}", "-p", "no:cacheprovider",
                   "--continue-on-collection-errors", "--tb=short", f"--rootdir={folder}", *_plugin_option(),
                   *(["-n", str(workers)] if workers > 1 else ["-p", "no:xdist"]), f"@{folder / 'waiting.txt'}"]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parents[2]),
                                                                                os.environ.get("PYTHONPATH")]))}
        with (folder / "pytest.log").open("w", encoding="utf-8") as log:
            subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, env=environment, check=False)
        done = read_results(results, folder)
    return {path: done.get(path, {}) for path in notebooks}


def _plugin_option() -> list[str]:
    """Name the plugin where installing the package has not registered it."""
    from importlib.metadata import entry_points

    names = {point.value for point in entry_points(group="pytest11")}
    return [] if "memstrat.grading.plugin" in names else ["-p", "memstrat.grading.plugin"]


def read_results(results: Path, folder: Path) -> dict[Path, dict[str, dict[str, str]]]:
    """What the plugin wrote, by notebook and cell; a line cut short by a stop is dropped."""
    found: dict[Path, dict[str, dict[str, str]]] = {}
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    for line in lines:
        try:
            report = json.loads(line)
        except ValueError:
            continue
        notebook, _, cell = report["node"].partition("::")
        message = report["message"] if report["outcome"] == "failed" else ""
        found.setdefault(folder / notebook, {})[cell] = {"outcome": report["outcome"], "message": message}
    return found


def _is_complete(path: Path, cells: dict[str, Any]) -> bool:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and source_of(cell) is not None]
    return len(cells) >= len(code)
