"""Submissions of many kinds, each with the fair grade written beside it. Notebooks are made from these sources.

A grade is 1 (full points), 0 (none) or `PART` (some, not all) for validate, pairs and handoff.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

import exercise_variants as variants

from memstrat import exercises

IDS = ("ex_validate", "ex_pairs", "ex_handoff")
POINTS = {"ex_validate": 4.0, "ex_pairs": 4.0, "ex_handoff": 2.0}
PART = "part"
STUBS = {grade_id: inspect.getsource(getattr(exercises, exercises.EXERCISES[grade_id].function_name)).split('"""')[0]
         + f'    raise NotImplementedError("{grade_id}: not done yet.")\n' for grade_id in IDS}
PUBLIC = {grade_id: exercises.EXERCISES[grade_id].function_name for grade_id in IDS}


def solution(grade_id: str, bug: str = "", before: str = "", inside: str = "", after: str = "") -> str:
    """A cell that stands alone: right, or wrong in one rule, with additions around and inside the function."""
    function = {"ex_validate": variants.validate, "ex_pairs": variants.pairs, "ex_handoff": variants.handoff}[grade_id]
    source = inspect.getsource(function).replace('bug=""', f'bug="{bug}"')
    head, _, body = source.partition("):\n")
    source = f"{head}):\n" + "".join(f"    {line}\n" for line in inside.splitlines()) + body
    helper = 'import math\n\nMETRICS = ("peak_memory_mb", "samples_per_s", "eval_loss")\n\n\n' \
        + inspect.getsource(variants.number)
    return "\n".join([before, helper, source, f"{PUBLIC[grade_id]} = {function.__name__}", after]) + "\n"


RIGHT = {grade_id: solution(grade_id) for grade_id in IDS}


class Kind(NamedTuple):
    """One submission: what is in its cells, how the notebook is bent, and the fair grade."""

    name: str
    cells: dict[str, str]
    grades: tuple[Any, Any, Any]
    bend: str = ""
    finding: str = ""


def _kind(name: str, grades: tuple[Any, Any, Any], bend: str = "", finding: str = "", **cells: str) -> Kind:
    return Kind(name, RIGHT | cells, grades, bend, finding)


_WRAP = """
def {name}(*args, **kwargs):
    answer = {inner}(*args, **kwargs)
    {change}
"""


def _changed(grade_id: str, change: str, before: str = "") -> str:
    """The right function with its answer changed on the way out."""
    inner = {"ex_validate": "validate", "ex_pairs": "pairs", "ex_handoff": "handoff"}[grade_id]
    return solution(grade_id, before=before, after=_WRAP.format(name=PUBLIC[grade_id], inner=inner, change=change))


_VISIBLE_ONLY = """
import json as _json
SEEN = {table}

def decide_strategy_handoff(evidence, minimum_repeats=3):
    key = _json.dumps([evidence, minimum_repeats], sort_keys=True)
    return SEEN.get(key, {{"status": "ready_for_budget_review", "reason": "paired_evidence_complete",
                          "eligible_candidates": ["checkpoint"], "next_action": "send_to_memory_budget_project"}})
"""


def _visible_only() -> str:
    from memstrat.checks.cases import visible_handoff

    table = {json.dumps([case.args[0], case.kwargs.get("minimum_repeats", 3)], sort_keys=True):
             variants.handoff(*case.args, **case.kwargs) for case in visible_handoff()}
    return _VISIBLE_ONLY.format(table=repr(table))


_NUMPY = """
import numpy as np
def build_strategy_pair_evidence(baseline, candidates):
    answer = pairs(baseline, candidates)
    for row in answer["comparisons"]:
        for key in row:
            if isinstance(row[key], float):
                row[key] = np.float64(row[key])
            elif isinstance(row[key], bool):
                row[key] = np.bool_(row[key])
    answer["oom_count"] = np.int64(answer["oom_count"])
    return answer
"""
_CLASS = """
class Judge:
    def __init__(self):
        self.names = []

    def __call__(self, baseline, candidates):
        return validate(baseline, candidates)

validate_strategy_experiment = Judge()
"""
_EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __getitem__(self, key): return self
def validate_strategy_experiment(baseline, candidates): return Equal()
def {name}(*args, **kwargs): return Equal()
"""
_TRANSFORMER = """
import ast
class AllTrue(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
get_ipython().ast_transformers.append(AllTrue())
get_ipython().set_custom_exc((Exception,), lambda *args, **kwargs: None)
def validate_strategy_experiment(baseline, candidates): return {}
"""
PAIRS = "def build_strategy_pair_evidence(b, c):\n    "

KINDS: list[Kind] = [
    _kind("right", (1, 1, 1)),
    Kind("untouched", dict(STUBS), (0, 0, 0)),
    Kind("two_of_three", RIGHT | {"ex_handoff": STUBS["ex_handoff"]}, (1, 1, 0)),
    _kind("helper_functions", (1, 1, 1), ex_validate=solution("ex_validate", before="def helper(x):\n    return x\n")),
    _kind("callable_class", (1, 1, 1), ex_validate=solution("ex_validate", after=_CLASS)),
    _kind("numpy_numbers", (1, 1, 1), ex_pairs=solution("ex_pairs", after=_NUMPY)),
    _kind("tuples_for_lists", (1, 1, 1),
          ex_handoff=_changed("ex_handoff", "return {**answer, 'eligible_candidates': "
                                            "tuple(answer['eligible_candidates'])}"),
          ex_pairs=_changed("ex_pairs", "return {**answer, 'comparisons': tuple(answer['comparisons'])}")),
    _kind("extra_keys", (1, 1, 1), ex_validate=_changed("ex_validate", "return {**answer, 'note': 'mine'}")),
    _kind("ordered_dict", (1, 1, 1), ex_handoff=_changed("ex_handoff", "return OrderedDict(answer)",
                                                         "from collections import OrderedDict")),
    _kind("lambda_style", (1, 1, 1),
          ex_handoff=solution("ex_handoff", after="decide_strategy_handoff = lambda *a, **k: handoff(*a, **k)")),
    _kind("recursion", (1, 1, 1), ex_validate=solution(
        "ex_validate", after="def count(n):\n    return 0 if n == 0 else 1 + count(n - 1)\ncount(300)")),
    _kind("warnings_and_prints", (1, 1, 1), ex_pairs=solution(
        "ex_pairs", inside="import sys, warnings\nwarnings.warn('careful')\nprint('x')\nprint('x', file=sys.stderr)")),
    _kind("output_flood", (1, 1, 1), ex_pairs=solution("ex_pairs", inside="print('x' * 100_000)")),
    _kind("thread_left_running", (1, 1, 1), ex_validate=solution(
        "ex_validate", after="import threading, time\n"
                             "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")),
    _kind("temporary_file", (1, 1, 1), ex_validate=solution(
        "ex_validate", inside="import tempfile\nwith tempfile.TemporaryFile('w+') as file:\n    file.write('x')")),
    _kind("file_in_working_folder", (1, 1, 1), ex_validate=solution(
        "ex_validate", inside="open('notes.txt', 'a').write('x')\nopen('notes.txt').read()")),
    _kind("unicode_names", (1, 1, 1), ex_handoff=solution(
        "ex_handoff", after="def 判断(证据, 最少=3):\n    return handoff(证据, 最少)\n"
                            "def decide_strategy_handoff(evidence, minimum_repeats=3):\n"
                            "    return 判断(evidence, minimum_repeats)")),
    _kind("check_and_tests_in_the_cell", (1, 1, 1), ex_pairs=solution(
        "ex_pairs", before="import memstrat",
        after="memstrat.check('ex_pairs', build_strategy_pair_evidence)\nassert False, 'my own test'")),
    _kind("uses_a_name_of_another_exercise", (1, 1, 1),
          ex_handoff=RIGHT["ex_handoff"].replace("import math", "").replace("METRICS = ", "UNUSED = ")
          + "\nprint(validate_strategy_experiment)\n"),
    _kind("patches_builtins_and_json", (1, 1, 1), ex_validate=solution(
        "ex_validate", after="import builtins, json\njson.dumps = json.loads = None\nbuiltins.print = None\n"
                             "builtins.sorted = lambda *a, **k: 1 / 0\nbuiltins.repr = None")),
    _kind("magics_and_shell", (1, 1, 1), ex_handoff="%%time\n" + RIGHT["ex_handoff"] + "\n%timeit 1 + 1\n!ls\n"),
    _kind("nbval_markers", (1, 0, 1), bend="skip_tags",
          ex_pairs="# NBVAL_SKIP\n# NBVAL_RAISES_EXCEPTION\nraise ValueError('skip me')\n"),
    _kind("off_by_one", (1, 1, PART), ex_handoff=solution("ex_handoff", "too_strict")),
    _kind("bool_as_number", (PART, PART, 1), ex_validate=solution("ex_validate", "bool"),
          ex_pairs=solution("ex_pairs", "bool")),
    _kind("swapped_sign", (1, 0, 1), ex_pairs=solution("ex_pairs", "saving_sign")),
    _kind("oom_as_saving", (1, PART, 1), ex_pairs=solution("ex_pairs", "oom_saving")),
    _kind("duplicate_missed", (PART, 1, 1), ex_validate=solution("ex_validate", "duplicate")),
    _kind("path_ignored", (PART, PART, PART), ex_validate=solution("ex_validate", "path"),
          ex_pairs=solution("ex_pairs", "path"), ex_handoff=solution("ex_handoff", "path")),
    _kind("nan_as_number", (PART, PART, 1), ex_validate=solution("ex_validate", "nan"),
          ex_pairs=solution("ex_pairs", "nan")),
    _kind("infinities_out", (1, 0, 1), ex_pairs=_changed(
        "ex_pairs", "return {**answer, 'comparable_count': float('inf'), 'oom_count': float('nan')}")),
    _kind("mutates_the_input", (0, 1, 1), ex_validate=solution("ex_validate", "mutates")),
    _kind("global_state", (0, 1, 1), ex_validate=_changed(
        "ex_validate", "SEEN.extend(answer['candidate_names']); return {**answer, 'candidate_names': list(SEEN)}",
        "SEEN = []")),
    _kind("visible_cases_only", (1, 1, 0), ex_handoff=_visible_only()),
    _kind("always_equal_object", (0, 0, 0), **{grade_id: _EQUAL.format(name=PUBLIC[grade_id]) for grade_id in IDS}),
    _kind("transformers_and_custom_exc", (0, 1, 1), ex_validate=_TRANSFORMER),
    _kind("endless_call", (1, 0, 1), ex_pairs=PAIRS + "while True:\n        pass\n"),
    _kind("endless_cell", (1, 0, 1), ex_pairs=RIGHT["ex_pairs"] + "\nwhile True:\n    pass\n"),
    _kind("endless_recursion", (1, 0, 1),
          ex_pairs=PAIRS + "return build_strategy_pair_evidence(b, c)\n"),
    _kind("memory_bomb", (1, 0, 1),
          ex_pairs=PAIRS + "return {'x': [bytearray(10**9) for _ in range(99)]}\n"),
    _kind("huge_answer", (1, 0, 1), ex_pairs=PAIRS + "return 'x' * 10**8\n"),
    _kind("os_exit_in_call", (1, 0, 1), ex_pairs="import os\n" + PAIRS + "os._exit(0)\n"),
    _kind("os_exit_in_cell", (0, 1, 1), ex_validate=RIGHT["ex_validate"] + "\nimport os\nos._exit(0)\n"),
    _kind("sys_exit", (1, 0, 1), ex_pairs="import sys\n" + PAIRS + "sys.exit(0)\n"),
    _kind("kills_itself", (1, 0, 1), ex_pairs=PAIRS + "import os\n    os.kill(os.getpid(), 9)\n"),
    _kind("signals_the_grader", (1, 0, 1), ex_pairs=PAIRS + "import os\n    os.kill(os.getppid(), 9)\n"),
    _kind("forks", (1, 0, 1), ex_pairs="import os\n" + PAIRS + "while True:\n        os.fork()\n"),
    _kind("asks_for_input", (1, 0, 1), ex_pairs=PAIRS + "return input('?')\n"),
    _kind("writes_outside", (1, 0, 1), ex_pairs="import memstrat\n" + PAIRS
          + "open(memstrat.__file__.replace('__init__', 'evil'), 'w').write('x')\n"),
    _kind("reads_the_reference", (1, 0, 1), finding="memstrat/evidence",
          ex_pairs="import memstrat\n" + PAIRS
          + "return open(memstrat.__file__.replace('__init__', 'evidence')).read()\n"),
    _kind("imports_the_reference", (1, 0, 1), finding="import memstrat.evidence",
          ex_pairs="from memstrat.evidence import build_strategy_pair_evidence\n"),
    _kind("loads_the_reference", (1, 0, 1), finding="memstrat.load_work",
          ex_pairs="import memstrat\nbuild_strategy_pair_evidence = memstrat.load_work('ex_pairs')\n"),
    _kind("syntax_error", (1, 0, 1), ex_pairs="def build_strategy_pair_evidence(b, c:\n    return {}\n"),
    _kind("function_renamed", (1, 0, 1), ex_pairs=RIGHT["ex_pairs"].replace("build_strategy_pair_evidence", "mine")),
    _kind("returns_none", (1, 0, 1), ex_pairs=PAIRS + "print(b)\n"),
    _kind("test_cells_edited", (1, 0, 1), bend="edit_tests", ex_pairs=PAIRS + "return 1\n"),
    _kind("test_cells_deleted", (1, 1, 1), bend="delete_tests"),
    _kind("cells_moved_and_added", (1, 1, 1), bend="shuffle"),
    _kind("stub_left_solution_below", (1, 1, 1), bend="stub_left"),
    _kind("colab_ids", (1, 1, 1), bend="colab"),
    _kind("no_metadata", (1, 1, 1), bend="bare"),
    _kind("notebook_format_3", (1, 1, 1), bend="format3"),
    _kind("windows_line_ends", (1, 1, 1), bend="crlf"),
    _kind("exercise_cell_deleted", (1, 0, 1), bend="delete_pairs"),
]


def make_release() -> dict[str, Any]:
    """A released notebook of the shape of 02: imports, three exercises, a test cell each, a given cell."""
    cells = [_cell("imports", "import json\nimport math\n\nimport memstrat")]
    for grade_id in IDS:
        cells.append(_cell(grade_id, STUBS[grade_id], solution=True, grade=False, locked=False))
        cells.append(_cell(f"test_{grade_id}", f'memstrat.check("{grade_id}", {PUBLIC[grade_id]})', solution=False,
                           grade=True, locked=True, points=POINTS[grade_id]))
    cells.append(_cell("last", "print('the end')"))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


def _cell(cell_id: str, source: str, **grading: Any) -> dict[str, Any]:
    metadata = {"nbgrader": {"schema_version": 3, "grade_id": cell_id, "task": False, "cell_type": "code",
                             **grading}} if grading else {}
    return {"cell_type": "code", "id": cell_id, "metadata": metadata, "source": source, "outputs": [],
            "execution_count": None}


def make_submission(kind: Kind) -> dict[str, Any]:
    """The notebook a learner of that kind hands in."""
    notebook = make_release()
    cells = notebook["cells"]
    for cell in cells:
        cell["source"] = kind.cells.get(cell["id"], cell["source"])
    tests = [cell for cell in cells if cell["id"].startswith("test_")]
    if kind.bend == "edit_tests":
        for cell in tests:
            cell["source"] = "pass"
    elif kind.bend == "skip_tags":
        for cell in cells:
            cell["metadata"]["tags"] = ["nbval-skip", "raises-exception"]
    elif kind.bend == "delete_tests":
        notebook["cells"] = [cell for cell in cells if cell not in tests]
    elif kind.bend == "delete_pairs":
        notebook["cells"] = [cell for cell in cells if cell["id"] != "ex_pairs"]
    elif kind.bend == "shuffle":
        notebook["cells"] = [_cell("mine", "print('mine')"), *reversed(cells)]
    elif kind.bend == "stub_left":
        for cell in cells:
            cell["source"] = STUBS.get(cell["id"], cell["source"])
        notebook["cells"] += [_cell(f"new-{number}", kind.cells[grade_id]) for number, grade_id in enumerate(IDS)]
    elif kind.bend == "colab":
        for cell in cells:
            cell["metadata"] = {"id": cell.pop("id"), "outputId": "x"}
        notebook["metadata"]["colab"] = {"provenance": []}
    elif kind.bend == "bare":
        for number, cell in enumerate(cells):
            cell |= {"metadata": {}, "id": f"c{number}"}
    elif kind.bend == "format3":
        sheets = [{"cell_type": "code", "language": "python", "collapsed": False, "metadata": {}, "outputs": [],
                   "input": cell["source"].splitlines(keepends=True)} for cell in cells]
        return {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [{"cells": sheets}]}
    elif kind.bend == "crlf":
        for cell in cells:
            cell["source"] = cell["source"].replace("\n", "\r\n")
    return notebook


def write_set(folder: Path) -> Path:
    """Write the release and one notebook a kind. Returns the release's path."""
    submitted = folder / "submitted"
    submitted.mkdir(parents=True)
    for kind in KINDS:
        (submitted / f"{kind.name}.ipynb").write_text(json.dumps(make_submission(kind)), encoding="utf-8")
    release = folder / "02_fair_pairs.ipynb"
    release.write_text(json.dumps(make_release()), encoding="utf-8")
    return release
