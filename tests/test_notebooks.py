"""The series as it stands in the repository: in step, well-formed, and running under nbval."""

from __future__ import annotations

import ast
import inspect
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from notebook_runs import NOTEBOOKS, code_cells, read, run_under_nbval, source_of

from memstrat.checks.registry import EXERCISES
from memstrat.notebooks.build import out_of_step, sources
from memstrat.notebooks.source import BEGIN, END

NAMES = ("00_start_here", "01_what_backward_needs", "02_fair_pairs", "03_predict", "04_run",
         "05_read_the_evidence", "06_go_further")
FOLDERS = {"learner en": "", "learner zh": "zh", "solution en": "solutions", "solution zh": "zh/solutions"}
UNFINISHED = {
    "01_what_backward_needs": ["test_ex_saved_bytes", "test_ex_pack_unpack"],
    "02_fair_pairs": ["test_ex_validate", "test_ex_pairs", "test_ex_handoff"],
    "03_predict": ["test_ex_peak_floor"],
}
MAX_CODE_LINES, MAX_WORDS = 15, 120
MARKS_OF_MACHINES = re.compile(r"/(home|root|tmp|work|Users)/")


def edition(name: str, kind: str) -> dict:
    return read(NOTEBOOKS / FOLDERS[kind] / f"{name}.ipynb")


def all_editions() -> list:
    return [pytest.param(name, kind, id=f"{name}-{kind.replace(' ', '-')}") for name in NAMES for kind in FOLDERS]


def count_code_lines(code: str) -> int:
    """Lines of code; docstrings, comments and blank lines do not count."""
    tree = ast.parse(code)
    prose = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            prose |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return sum(1 for number, line in enumerate(code.split("\n"), 1)
               if line.strip() and not line.strip().startswith("#") and number not in prose)


def count_words(markdown: str) -> int:
    """Words outside tables, hints and links; two Chinese characters count as one word."""
    text = re.sub(r"<details>.*?</details>", "", markdown, flags=re.S)
    text = "\n".join(line for line in text.split("\n") if not line.startswith("|"))
    text = re.sub(r"\]\([^)]*\)", "]", text)
    chinese = re.findall(r"[\u4e00-\u9fff]", text)
    return len(re.sub(r"[\u4e00-\u9fff]", " ", text).split()) + len(chinese) // 2


def filled_in(name: str) -> dict:
    """The learner edition with its exercises done."""
    notebook = edition(name, "learner en")
    solved = {cell["id"]: source_of(cell) for cell in code_cells(edition(name, "solution en"))}
    for cell in code_cells(notebook):
        if cell["id"] in EXERCISES:
            cell["source"] = solved[cell["id"]]
    return notebook


# What each test that asks for `outcomes` has run: the notebook, and whether unfinished exercises raise.
RUNS = {
    "test_solution_editions_run_and_agree_with_their_outputs": (lambda name: edition(name, "solution en"), True),
    "test_chinese_solution_editions_run_and_agree_with_their_outputs": (
        lambda name: edition(name, "solution zh"), True),
    "test_untouched_learner_editions_fail_exactly_their_unfinished_exercises": (
        lambda name: edition(name, "learner en"), True),
    "test_learner_editions_with_the_solutions_filled_in_pass": (filled_in, True),
    "test_run_all_on_an_untouched_learner_edition_reaches_the_end": (lambda name: edition(name, "learner zh"), False),
}


@pytest.fixture(scope="module")
def runs(request, tmp_path_factory):
    """Every run that the selected tests need, two at a time: outcomes to come, and folder, by test.

    The longest go first. A worker of pytest-xdist is one of several and runs one at a time.
    """
    items = [item for item in request.session.items
             if item.path == request.path and "outcomes" in item.fixturenames]
    items.sort(key=lambda item: item.callspec.params["name"] not in ("03_predict", "04_run", "06_go_further"))
    with ThreadPoolExecutor(1 if "PYTEST_XDIST_WORKER" in os.environ else 2) as executor:
        started = {}
        for item in items:
            make, strict = RUNS[item.originalname]
            folder = tmp_path_factory.mktemp("run")
            started[item.name] = executor.submit(
                run_under_nbval, make(item.callspec.params["name"]), folder, strict=strict), folder
        yield started
        executor.shutdown(cancel_futures=True)


@pytest.fixture
def outcomes(runs, request):
    """Outcome by cell id of the run that this test is about."""
    return runs[request.node.name][0].result()


@pytest.fixture
def folder_of_run(runs, request):
    return runs[request.node.name][1]


def test_editions_equal_their_source():
    assert out_of_step(NOTEBOOKS) == []


def test_series_holds_the_seven_notebooks():
    assert tuple(source.name for source in sources(NOTEBOOKS)) == NAMES


def test_exercises_are_those_of_the_registry():
    held = {grade_id: source.name for source in sources(NOTEBOOKS) for grade_id in source.exercises}
    assert held == {grade_id: spec.notebook for grade_id, spec in EXERCISES.items()}


@pytest.mark.parametrize("name", NAMES)
def test_cells_are_short(name):
    for kind in ("learner en", "learner zh"):
        for cell in edition(name, kind)["cells"]:
            text = source_of(cell)
            if cell["cell_type"] == "markdown":
                assert count_words(text) <= MAX_WORDS, f"{kind} {cell['id']}"
            elif cell["id"] != "first_cell":  # that one is folded: it runs before the package is there
                assert count_code_lines(text) <= MAX_CODE_LINES, f"{kind} {cell['id']}"


@pytest.mark.parametrize(("name", "kind"), all_editions())
def test_edition_is_well_formed(name, kind):
    import nbformat

    notebook = edition(name, kind)
    nbformat.validate(nbformat.from_dict(notebook))
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(ids) == len(set(ids))
    assert ids[0] == "title" and "first_cell" in ids and ids[-1] == "limits"
    text = "\n".join(map(source_of, notebook["cells"]))
    assert "{badges}" not in text and "{contract}" not in text and "[zh]" not in text and "[en]" not in text
    assert bool(re.search(r"[\u4e00-\u9fff]", source_of(notebook["cells"][0]))) == kind.endswith("zh")
    for cell in code_cells(notebook):
        executed = kind.startswith("solution")
        assert (cell["execution_count"] is not None) == executed, cell["id"]
        assert executed or cell["outputs"] == []
        assert not MARKS_OF_MACHINES.search(str(cell["outputs"])), cell["id"]
        assert not any(output["output_type"] == "error" for output in cell["outputs"]), cell["id"]


@pytest.mark.parametrize("name", [name for name in NAMES if name in UNFINISHED])
def test_chinese_learner_editions_speak_chinese_in_stubs(name):
    for cell in code_cells(edition(name, "learner zh")):
        if cell["id"] in EXERCISES:
            docstring = ast.get_docstring(ast.parse(source_of(cell)).body[0])
            assert len(re.findall(r"[\u4e00-\u9fff]", docstring)) > 80


@pytest.mark.parametrize("kind", FOLDERS)
@pytest.mark.parametrize("grade_id", EXERCISES)
def test_exercise_cells_follow_nbgrader(grade_id, kind):
    spec = EXERCISES[grade_id]
    cells = {cell["id"]: cell for cell in edition(spec.notebook, kind)["cells"]}
    solution, check = cells[grade_id], cells[f"test_{grade_id}"]
    assert solution["metadata"]["nbgrader"] == {
        "schema_version": 3, "grade": False, "solution": True, "locked": False, "task": False, "grade_id": grade_id}
    assert check["metadata"]["nbgrader"] == {
        "schema_version": 3, "grade": True, "solution": False, "locked": True, "task": False,
        "grade_id": f"test_{grade_id}", "points": spec.points, "cell_type": "code"}
    assert source_of(check) == f'memstrat.check("{grade_id}", {spec.function_name})'
    code = source_of(solution)
    assert (BEGIN in code and END in code) == kind.startswith("solution")


@pytest.mark.parametrize("grade_id", EXERCISES)
def test_stub_raises_and_names_its_exercise(grade_id):
    spec = EXERCISES[grade_id]
    stub = next(cell for cell in code_cells(edition(spec.notebook, "learner en")) if cell["id"] == grade_id)
    namespace: dict = {}
    exec(source_of(stub), namespace)
    function = namespace[spec.function_name]
    with pytest.raises(NotImplementedError, match=grade_id):
        function(*[None] * function.__code__.co_argcount)
    assert inspect.cleandoc(function.__doc__) == inspect.cleandoc(spec.stub().__doc__)


@pytest.mark.parametrize("name", NAMES)
def test_solution_editions_run_and_agree_with_their_outputs(name, outcomes):
    compared = [cell for cell in code_cells(edition(name, "solution en"))
                if "nbval-check-output" in cell["metadata"].get("tags", [])]
    assert compared, "at least one stored output must be compared"
    assert {cell_id: text for cell_id, text in outcomes.items() if text != "passed"} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_chinese_solution_editions_run_and_agree_with_their_outputs(name, outcomes):
    assert {cell_id: text for cell_id, text in outcomes.items() if text != "passed"} == {}


@pytest.mark.parametrize("name", [*UNFINISHED, "04_run"])
def test_untouched_learner_editions_fail_exactly_their_unfinished_exercises(name, outcomes):
    failed = {cell_id: text for cell_id, text in outcomes.items() if text != "passed"}
    assert list(failed) == UNFINISHED.get(name, [])
    for cell_id, text in failed.items():
        assert f"not done yet: {cell_id.removeprefix('test_')}" in text


@pytest.mark.parametrize("name", ["00_start_here", "05_read_the_evidence", "06_go_further"])
def test_learner_editions_without_exercises_hold_the_code_of_the_solution_edition(name):
    """So that running one of the two is running both."""
    learner, solution = (edition(name, kind) for kind in ("learner en", "solution en"))
    assert [(cell["id"], source_of(cell)) for cell in code_cells(learner)] == [
        (cell["id"], source_of(cell)) for cell in code_cells(solution)]


@pytest.mark.parametrize("name", ["01_what_backward_needs", "02_fair_pairs"])
def test_learner_editions_with_the_solutions_filled_in_pass(name, outcomes, folder_of_run):
    assert set(outcomes.values()) == {"passed"}, outcomes
    saved = sorted(path.stem for path in (folder_of_run / "my_work").glob("*.py"))
    assert saved == sorted(grade_id for grade_id, spec in EXERCISES.items() if spec.notebook == name)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_run_all_on_an_untouched_learner_edition_reaches_the_end(name, outcomes):
    """Without strict an unfinished exercise says so and nothing raises: Run All does not stop."""
    assert set(outcomes.values()) == {"passed"}, outcomes


def test_sources_are_in_one_folder():
    assert sorted(path.name for path in (NOTEBOOKS / "src").iterdir() if path.suffix == ".py") == \
        [f"{name}.py" for name in NAMES]
    assert Path(NOTEBOOKS / "src" / "series.json").is_file()
