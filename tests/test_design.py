"""The house as CONTRIBUTING draws it: module order, no torch above the line, and a quick start."""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
PACKAGE = CHECKOUT / "memstrat"
TORCH_LINE = "torch from here on"
RUNS_IN_TORCH_CHILD = ("memstrat.checks.adapters",)  # loaded late, where a learner's hooks run
MAX_HELP_S, MAX_IMPORT_S = 0.4, 0.4
_BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ImportError(f"{{name}} must not be imported here")
sys.meta_path.insert(0, Blocker())
"""


def read_order() -> tuple[list[str], list[str]]:
    """Modules in CONTRIBUTING's table: those above the torch line, and those below."""
    text = (CHECKOUT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split("## The order of modules")[1].split("\n## ")[0]
    above, _, below = table.partition(TORCH_LINE)
    return _names(above), _names(below)


def _names(table: str) -> list[str]:
    rows = re.findall(r"^\| (`[^|]*) \|", table, flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def imports_of(path: Path) -> Iterator[str]:
    """Top-level modules of ours that a file imports, late imports included, those for types alone left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.If)
                 and ast.unparse(node.test).endswith("TYPE_CHECKING") for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports must be absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        ours = (name.split(".")[1] for name in names if name.startswith("memstrat."))
        yield from (name for name in ours if name in modules_there())


@cache
def modules_there() -> frozenset[str]:
    """Names of the package's modules and subpackages."""
    return frozenset({path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
                     | {path.parent.name for path in PACKAGE.glob("*/__init__.py")})


def run_python(code: str, blocked: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    blocker = _BLOCKER.format(blocked=set(blocked)) if blocked else ""
    return subprocess.run([sys.executable, "-c", blocker + code], capture_output=True, text=True, cwd=CHECKOUT)


def best_of_five(command: list[str]) -> float:
    """Least processor time of five runs, in seconds: on an idle machine the time a person waits."""
    times = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True, cwd=CHECKOUT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(times)


def modules_of(name: str) -> list[str]:
    """Dotted names of a module, or of a package with all that it holds."""
    if not (PACKAGE / name).is_dir():
        return [f"memstrat.{name}"]
    files = sorted((PACKAGE / name).rglob("*.py"))
    parts = [file.relative_to(CHECKOUT).with_suffix("").parts for file in files if file.name != "__main__.py"]
    return [".".join(part for part in names if part != "__init__") for names in parts]


def test_every_module_has_its_place():
    above, below = read_order()
    placed = above + below
    assert len(placed) == len(set(placed))
    assert set(placed) == modules_there()


def test_saved_tensors_stand_above_the_strategies():
    below = read_order()[1]
    assert below.index("saved_tensors") < below.index("strategies") < below.index("measure") < below.index("runner")


def test_modules_import_only_what_stands_before_them():
    placed = sum(read_order(), [])
    wrong = [f"{path.relative_to(PACKAGE)} imports {needed}" for rank, name in enumerate(placed)
             for path in ([PACKAGE / f"{name}.py"] if (PACKAGE / f"{name}.py").exists()
                          else sorted((PACKAGE / name).rglob("*.py")))
             for needed in imports_of(path) if needed != name and needed not in placed[:rank]]
    assert wrong == []


def test_nothing_above_the_line_needs_torch():
    above = read_order()[0]
    assert "decision" in above and "measure" not in above
    names = [dotted for name in above for dotted in modules_of(name) if dotted not in RUNS_IN_TORCH_CHILD]
    done = run_python("\n".join(f"import {name}" for name in names), blocked=("torch", "transformers"))
    assert done.stderr == ""


def test_exercises_need_neither_torch_nor_records():
    code = "import memstrat, memstrat.exercises, memstrat.evidence; print(memstrat.__version__)"
    done = run_python(code, blocked=("torch", "transformers", "pydantic", "numpy", "matplotlib"))
    assert (done.stderr, done.stdout.strip()) == ("", "0.1.0")


def test_exercises_load_in_a_blink():
    assert best_of_five([sys.executable, "-c", "import memstrat, memstrat.exercises"]) < MAX_IMPORT_S


def test_help_answers_at_once():
    memstrat = Path(sys.executable).parent / "memstrat"
    command = [str(memstrat)] if os.access(memstrat, os.X_OK) else [sys.executable, "-c",
                                                                   "from memstrat.cli import main; main()"]
    assert best_of_five([*command, "--help"]) < MAX_HELP_S


def test_help_needs_neither_torch_nor_records():
    code = ("import sys; sys.argv = ['memstrat', '--help']\nfrom memstrat.cli import main\n"
            "try:\n    main()\nfinally:\n    print('records' , 'memstrat.records' in sys.modules)")
    done = run_python(code, blocked=("torch", "transformers", "pydantic", "matplotlib", "numpy"))
    assert "Usage: memstrat" in done.stdout and done.stdout.rstrip().endswith("records False")
    assert done.stderr == ""
