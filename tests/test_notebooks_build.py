"""The builder on small sources of its own."""

from __future__ import annotations

import json

import pytest

from memstrat.errors import InputError
from memstrat.notebooks import build as builder
from memstrat.notebooks.source import Edition, assemble, one_language, read_source, without_solution

SOURCE = '''# %% [markdown] id="title" lang="en"
# # A question
# {badges}
# %% [markdown] id="title" lang="zh"
# # 一个问题
# {badges}
# %% id="first_cell" kind="first"
# %% id="ex_handoff" kind="exercise"
def decide_strategy_handoff(evidence, minimum_repeats=3):
    """
    [en] {contract}
    [zh] 契约
    """
    ### BEGIN SOLUTION
    return {}
    ### END SOLUTION
# %% id="test_ex_handoff" kind="check" points=2
memstrat.check("ex_handoff", decide_strategy_handoff)
# %% [markdown] id="why" lang="en" only="solution"
# because
# %% [markdown] id="why" lang="zh" only="solution"
# 因为
# %% id="compared" compare=true
print(1)
'''


def write(tmp_path, text=SOURCE):
    path = tmp_path / "00_small.py"
    path.write_text(text, encoding="utf-8")
    return path


def make(tmp_path, language="en", is_solution=False):
    edition = Edition(language, is_solution, "ada/memstrat", "v1")
    return assemble(read_source(write(tmp_path)), edition, {"first_cell": "1", "badges": "[badge](x)"})


def test_editions_differ_in_language_and_solution_alone(tmp_path):
    assert [cell.id for cell in make(tmp_path).cells] == [
        "title", "first_cell", "ex_handoff", "test_ex_handoff", "compared"]
    assert [cell.id for cell in make(tmp_path, "zh", True).cells] == [
        "title", "first_cell", "ex_handoff", "test_ex_handoff", "why", "compared"]
    assert make(tmp_path).cells[0].source == "# A question\n[badge](x)"
    assert make(tmp_path, "zh").cells[0].source == "# 一个问题\n[badge](x)"


def test_stub_holds_the_contract_and_raises_its_grade_id(tmp_path):
    stub = make(tmp_path).cells[2].source
    assert stub.startswith('def decide_strategy_handoff(evidence, minimum_repeats=3):\n    """\n    Say whether paired')
    assert stub.endswith('"""\n    # Your code here.\n    raise NotImplementedError("ex_handoff")')
    assert "return {}" not in stub


def test_chinese_stub_speaks_chinese(tmp_path):
    assert make(tmp_path, "zh").cells[2].source.endswith(
        '"""\n    契约\n    """\n    # 在这里写你的代码。\n    raise NotImplementedError("ex_handoff")')


def test_only_solution_editions_have_compared_outputs(tmp_path):
    assert make(tmp_path).cells[-1].metadata == {}
    assert make(tmp_path, is_solution=True).cells[-1].metadata == {"tags": ["nbval-check-output"]}


def test_one_language_keeps_marked_lines_of_that_language():
    code = "x = 1  # [en]\nx = 2  # [zh]\n# [en] a\n# [zh] b\ny = x"
    assert one_language(code, "en") == "x = 1\n# a\ny = x"
    assert one_language(code, "zh") == "x = 2\n# b\ny = x"


def test_solution_must_be_closed():
    with pytest.raises(InputError, match="ex_a: must close ### BEGIN SOLUTION"):
        without_solution("### BEGIN SOLUTION\nreturn 1", "ex_a", "en")


@pytest.mark.parametrize(("change", "message"), [
    (('id="compared"', 'id="Compared one"'), "cell id must be lower case"),
    (('id="compared"', 'id="title"'), "'title' twice in en"),
    (('id="why" lang="zh"', 'id="because" lang="zh"'), "a difference in because, why"),
    (('kind="check"', 'kind="other"'), "exercise must have a check cell test_ex_handoff"),
    ((' lang="en" only', ' only'), "markdown must have lang en or zh"),
])
def test_source_with_a_mistake_is_refused(tmp_path, change, message):
    with pytest.raises(InputError) as refused:
        read_source(write(tmp_path, SOURCE.replace(*change)))
    assert message in str(refused.value)


def make_series(tmp_path):
    folder = tmp_path / "notebooks"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "series.json").write_text('{"repository": "OWNER/memstrat", "ref": "main"}')
    (folder / "src" / "00_small.py").write_text(SOURCE, encoding="utf-8")
    return folder


@pytest.fixture
def series(tmp_path, monkeypatch):
    def pretend_to_run(notebook):
        for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
            cell.execution_count = number + 1

    monkeypatch.setattr(builder, "run_notebook", pretend_to_run)
    return make_series(tmp_path)


def test_build_writes_four_editions_once(series):
    written = builder.build(series, report=lambda line: None)
    assert sorted(path.relative_to(series).as_posix() for path in written) == [
        "00_small.ipynb", "solutions/00_small.ipynb", "zh/00_small.ipynb", "zh/solutions/00_small.ipynb"]
    assert builder.out_of_step(series) == []
    assert builder.build(series, report=lambda line: None) == []


def test_changed_prose_keeps_outputs_and_changed_code_does_not(series, monkeypatch):
    builder.build(series, report=lambda line: None)
    ran = []
    monkeypatch.setattr(builder, "run_notebook", ran.append)
    source = series / "src" / "00_small.py"
    source.write_text(SOURCE.replace("because", "since"), encoding="utf-8")
    builder.build(series, report=lambda line: None)
    solution = json.loads((series / "solutions" / "00_small.ipynb").read_text())
    assert ran == [] and [cell.get("execution_count") for cell in solution["cells"]][-1] == 4
    assert "since" in "".join(solution["cells"][4]["source"]) and builder.out_of_step(series) == []
    source.write_text(SOURCE.replace("print(1)", "print(2)"), encoding="utf-8")
    builder.build(series, report=lambda line: None)
    assert len(ran) == 2


def test_edited_missing_and_stray_editions_are_out_of_step(series):
    builder.build(series, report=lambda line: None)
    edited = json.loads((series / "00_small.ipynb").read_text())
    edited["cells"][-1]["source"] = "print(2)"
    (series / "00_small.ipynb").write_text(json.dumps(edited))
    (series / "zh" / "00_small.ipynb").unlink()
    (series / "old.ipynb").write_text("{}")
    assert builder.out_of_step(series) == [
        "old.ipynb: must come from a source, got none. Remove it.",
        "00_small.ipynb: must equal its source, got other cells. Run make notebooks.",
        "zh/00_small.ipynb: must exist, got no such file. Run make notebooks."]


def test_address_is_stamped_into_badges_first_cell_and_readme(series):
    readme = series.parent / "README.md"
    readme.write_text("# x\n<!-- badges:begin -->\nold\n<!-- badges:end -->\ntail\n")
    builder.write_address(series, "ada/memstrat@v2")
    builder.build(series, report=lambda line: None)
    title, first = (cell["source"] for cell in json.loads((series / "zh" / "00_small.ipynb").read_text())["cells"][:2])
    place = "github/ada/memstrat/blob/v2/notebooks/zh/00_small.ipynb"
    assert f"https://colab.research.google.com/{place}" in "".join(title)
    assert f"https://modelscope.cn/notebook/share/{place}" in "".join(title)
    assert 'REPOSITORY, REF, LANGUAGE = "ada/memstrat", "v2", "zh"' in "".join(first)
    assert "old" not in readme.read_text() and place in readme.read_text() and readme.read_text().endswith("tail\n")


@pytest.mark.parametrize("repo", ["memstrat", "a/b/c", "a b/c", "ada/memstrat@", "https://github.com/ada/memstrat"])
def test_address_must_be_owner_and_name(series, repo):
    with pytest.raises(InputError, match="repo: must be owner/name"):
        builder.write_address(series, repo)
