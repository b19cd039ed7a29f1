"""Reports, rubric, collection and check-submission: what an instructor and a learner read."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
import submission_set
from submission_set import KINDS, RIGHT, make_submission, solution

from memstrat.errors import InputError
from memstrat.grading.batch import grade
from memstrat.grading.precheck import check_file, describe
from memstrat.grading.rebuild import pick_cells, plain_source, read_release, rebuild
from memstrat.grading.rubric import Rubric, read_rubric, write_rubric
from memstrat.grading.submissions import find_submissions, read_cells

BY_NAME = {kind.name: kind for kind in KINDS}


@pytest.fixture
def release(tmp_path) -> Path:
    path = tmp_path / "02_fair_pairs.ipynb"
    path.write_text(json.dumps(submission_set.make_release()))
    return path


def submit(folder: Path, name: str, kind: str) -> Path:
    path = folder / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(make_submission(BY_NAME[kind])))
    return path


def test_reports_hold_a_row_a_column_a_suite_and_a_page_each(tmp_path, release):
    submit(tmp_path / "in", "李雷", "right")
    submit(tmp_path / "in", "=SUM(A1)", "swapped_sign")
    submit(tmp_path / "in", "<b>bob", "untouched")
    grade([tmp_path / "in"], tmp_path / "out", [release], execute=False, language="zh")
    rows = list(csv.DictReader((tmp_path / "out" / "gradebook.csv").read_text(encoding="utf-8").splitlines()))
    columns = ("learner", "ex_validate", "ex_pairs", "ex_handoff", "points")
    assert [tuple(row[column] for column in columns) for row in rows] == [
        ("<b>bob", "0", "0", "0", "0"), ("'=SUM(A1)", "4", "0", "2", "6"), ("李雷", "4", "4", "2", "10")]
    suites = ET.parse(tmp_path / "out" / "junit.xml").getroot()
    assert [(suite.get("name"), suite.get("failures")) for suite in suites] == [
        ("<b>bob", "3"), ("=SUM(A1)", "1"), ("李雷", "0")]
    pages = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out" / "feedback").iterdir()}
    assert len(pages) == 3 and "李雷 的反馈" in pages["李雷.html"]
    signs = next(page for name, page in pages.items() if "SUM" in name)
    assert "符号反了" in signs and "差异位置" in signs
    bob = next(page for name, page in pages.items() if "bob" in name)
    assert "<b>bob" not in bob and "&lt;b&gt;bob" in bob
    for page in pages.values():
        HTMLParser().feed(page)
        assert "`" not in page[page.index("<h1>"):]  # code is set as code
        assert "def build_strategy_pair_evidence" not in page  # the reference's source is never shown


def test_learner_comes_from_file_folder_zip_or_id_file(tmp_path):
    submit(tmp_path / "in" / "carol" / "hw", "02_fair_pairs", "right")
    submit(tmp_path / "in", "dave", "right")
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("erin/02.ipynb", json.dumps(make_submission(BY_NAME["right"])))
        archive.writestr("__MACOSX/._02.ipynb", "x")
    (tmp_path / "ids.csv").write_text("file,learner\ndave.ipynb,s-0042\n")
    found = find_submissions([tmp_path / "in", tmp_path / "more.zip"], tmp_path / "ids.csv")
    assert [one.learner for one in found] == ["carol", "erin", "s-0042"]
    (tmp_path / "bad.zip").write_text("no zip")
    assert find_submissions([tmp_path / "bad.zip"])[0].reason == "empty file"
    (tmp_path / "ids.csv").write_text("name\n")
    with pytest.raises(InputError, match="columns file and learner"):
        find_submissions([tmp_path / "in"], tmp_path / "ids.csv")


def test_rebuilt_notebook_is_the_release_with_the_exercise_cells_alone(release):
    bent = make_submission(BY_NAME["test_cells_edited"])
    bent["cells"].append({"cell_type": "code", "id": "evil", "metadata": {}, "source": "evil()", "outputs": []})
    known = read_release(release)
    built = rebuild(known, pick_cells(known, list(read_cells(bent))))
    assert [cell["id"] for cell in built["cells"]] == [cell["id"] for cell in known.content["cells"]]
    sources = {cell["id"]: cell["source"] for cell in built["cells"]}
    assert sources["test_ex_pairs"] == 'memstrat.check("ex_pairs", build_strategy_pair_evidence)'
    assert sources["ex_validate"] == RIGHT["ex_validate"]
    assert all("tags" not in cell["metadata"] for cell in built["cells"])


def test_release_must_hold_an_exercise(tmp_path):
    (tmp_path / "x.ipynb").write_text('{"cells": []}')
    with pytest.raises(InputError, match="must hold an exercise"):
        read_release(tmp_path / "x.ipynb")


@pytest.mark.parametrize(("source", "expected"), [
    ("%%time\nx = 1\n", "x = 1\n"), ("%matplotlib inline\nx = 1", "pass\nx = 1"), ("if 1:\n    !ls", "if 1:\n    pass"),
    ("x = 5 % 3\n!ls", "x = 5 % 3\npass"), ("print?\nx = 1", "pass\nx = 1"),
])
def test_plain_source_takes_out_what_is_not_python(source, expected):
    assert plain_source(source) == expected


def test_rubric_gives_partial_credit_above_its_threshold(tmp_path):
    rubric = Rubric(earns_from=0.5, points={"ex_pairs": 10})
    assert [rubric.earned("ex_pairs", right, 40) for right in (0, 20, 30, 39, 40)] == [0, 0, 5.0, 9.5, 10.0]
    path = write_rubric(tmp_path / "rubric.toml", release="autumn")
    made = read_rubric(path)
    assert made.release == "autumn" and len(made.hidden_secret) == 32
    assert made.hidden_secret != read_rubric(write_rubric(tmp_path / "other.toml")).hidden_secret
    assert "hidden_secret" not in made.public()
    with pytest.raises(InputError, match="must be a new file"):
        write_rubric(path)
    path.write_text("[points]\nex_nothing = 3\n")
    with pytest.raises(InputError, match="ex_validate"):
        read_rubric(path)
    path.write_text("points = ")
    with pytest.raises(InputError, match="must be a TOML file"):
        read_rubric(path)


def test_check_submission_speaks_of_rules_and_of_the_hidden_cases(tmp_path, release):
    good = check_file(submit(tmp_path, "mine", "right"), [release])
    assert good["passed"] and good["exercises"]["ex_pairs"]["right"]["hidden"] == [0, 0]
    assert "The grade adds 24 hidden cases an exercise." in describe(good, "en")
    wrong = check_file(submit(tmp_path, "wrong", "swapped_sign"), [release])
    assert not wrong["passed"]
    assert "符号反了" in describe(wrong, "zh")
    (tmp_path / "x.ipynb").write_text("{")
    assert describe(check_file(tmp_path / "x.ipynb", [release]), "en") == "x.ipynb: not a notebook: no JSON"


def test_check_and_grade_agree(tmp_path, release):
    """A function that the learner's check passes is graded in full, one that it refuses is not."""
    import memstrat

    for name, bug in (("good", ""), ("bad", "delta_sign")):
        source = solution("ex_pairs", bug)
        namespace: dict = {}
        exec(source, namespace)
        passed = True
        try:
            memstrat.check("ex_pairs", namespace["build_strategy_pair_evidence"])
        except memstrat.errors.CheckFailed:
            passed = False
        kind = BY_NAME["right"]._replace(cells=RIGHT | {"ex_pairs": source})
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(make_submission(kind)))
        result = check_file(tmp_path / f"{name}.ipynb", [release])
        assert (result["exercises"]["ex_pairs"]["status"] == "passed") is passed is (bug == "")


@pytest.mark.parametrize("name", ["02_fair_pairs", "03_predict",
                                  pytest.param("01_what_backward_needs", marks=pytest.mark.slow)])
def test_solution_edition_earns_everything_and_the_learner_edition_nothing(tmp_path, name):
    notebooks = Path(__file__).parents[1] / "notebooks"
    learner, solved = notebooks / f"{name}.ipynb", notebooks / "solutions" / f"{name}.ipynb"
    if not (learner.exists() and solved.exists()):
        pytest.skip(f"{name} is not built")
    results = grade([solved], tmp_path / "solved", [learner], execute=False)["learners"][0]
    assert results["points"] == results["max_points"] > 0
    results = grade([learner], tmp_path / "untouched", [learner], execute=False)["learners"][0]
    assert results["points"] == 0
