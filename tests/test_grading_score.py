"""Submissions of every kind in one batch: each gets the grade written beside it, and none touches another."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
import submission_set
from submission_set import IDS, KINDS, PART

from memstrat.errors import InputError
from memstrat.grading.batch import grade
from memstrat.grading.processes import ChildServer, Limits

LIMITS = Limits(call_s=1.5, load_s=5.0, memory_bytes=256 * 2**20)


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batch")
    release = submission_set.write_set(folder)
    submitted = folder / "submitted"
    (submitted / "broken.ipynb").write_text('{"cells": [')
    (submitted / "empty.ipynb").write_text("")
    (submitted / "huge.ipynb").write_bytes(b" " * (20 * 2**20 + 1))
    (submitted / "photo.ipynb").write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    (submitted / "list.ipynb").write_text("[1, 2]")
    results = grade([submitted], folder / "out", [release], execute=False, limits=LIMITS)
    return folder, release, {row["learner"]: row for row in results["learners"]}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_submission_gets_its_fair_grade(batch, kind):
    row = batch[2][kind.name]
    for grade_id, expected in zip(IDS, kind.grades, strict=True):
        exercise = row["exercises"][grade_id]
        share = exercise["points"] / exercise["max_points"]
        assert 0 < share < 1 if expected == PART else share == expected, (grade_id, exercise)
    findings = [finding for exercise in row["exercises"].values() for finding in exercise["findings"]]
    assert any(kind.finding in finding for finding in findings) if kind.finding else not findings


@pytest.mark.parametrize(("name", "reason"), [
    ("broken", "not a notebook: no JSON"), ("empty", "empty file"), ("huge", "larger than 20 MiB (20 MiB)"),
    ("photo", "not a notebook: no JSON"), ("list", "not a notebook: no cells"),
])
def test_unreadable_file_is_a_row_with_a_reason(batch, name, reason):
    row = batch[2][name]
    assert (row["status"], row["points"], row["max_points"]) == ("unreadable", 0, 10)
    assert row["reason"] == f"{name}.ipynb: {reason}"


@pytest.mark.parametrize(("name", "grade_id", "rule"), [
    ("off_by_one", "ex_handoff", "threshold_off_by_one"), ("swapped_sign", "ex_pairs", "saving_sign_swapped"),
    ("oom_as_saving", "ex_pairs", "failure_is_no_saving"), ("duplicate_missed", "ex_validate", "duplicate_missed"),
    ("bool_as_number", "ex_pairs", "bool_is_no_number"), ("mutates_the_input", "ex_validate", "input_mutated"),
    ("endless_call", "ex_pairs", "timed_out"), ("os_exit_in_call", "ex_pairs", "process_ended"),
])
def test_broken_rule_is_named(batch, name, grade_id, rule):
    assert batch[2][name]["exercises"][grade_id]["broken"][0]["rule"] == rule


def test_endless_cell_says_what_was_slow(batch):
    assert batch[2]["endless_cell"]["exercises"]["ex_pairs"]["problem"] == "the cell did not finish (timed_out)"


def test_equal_batch_gives_equal_bytes_and_a_stopped_one_continues(batch):
    folder, release, _ = batch
    kept = [kind.name for kind in KINDS[:6]]
    submitted = folder / "few"
    submitted.mkdir()
    for name in kept:
        shutil.copy(folder / "submitted" / f"{name}.ipynb", submitted)
    outs = [folder / "first", folder / "second"]
    for out in outs:
        grade([submitted], out, [release], execute=False, workers=2 if out == outs[0] else 1, limits=LIMITS)
    for name in ("gradebook.csv", "results.json", "junit.xml"):
        assert (outs[0] / name).read_bytes() == (outs[1] / name).read_bytes()
    before = (outs[0] / "results.json").read_bytes()
    states = sorted((outs[0] / "state").iterdir())
    untouched = states[0].stat().st_mtime_ns
    states[1].write_text('{"fingerprint": "cut sho')
    states[2].unlink()
    grade([submitted], outs[0], [release], execute=False, limits=LIMITS)
    assert (outs[0] / "results.json").read_bytes() == before
    assert states[0].stat().st_mtime_ns == untouched


def test_hidden_cases_depend_on_the_secret_and_are_never_shown(batch):
    folder, release, _ = batch
    rubric = folder / "rubric.toml"
    rubric.write_text('release = "autumn"\nhidden_secret = "only mine"\n[points]\nex_pairs = 10\n')
    submitted = folder / "one"
    submitted.mkdir()
    shutil.copy(folder / "submitted" / "swapped_sign.ipynb", submitted)
    results = grade([submitted], folder / "secret", [release], rubric_path=rubric, execute=False, limits=LIMITS)
    exercise = results["learners"][0]["exercises"]["ex_pairs"]
    assert exercise["max_points"] == 10
    assert exercise["right"]["hidden"][0] < exercise["right"]["hidden"][1] == 24
    text = "".join(path.read_text() for path in (folder / "secret").rglob("*") if path.is_file())
    assert "only mine" not in text and "autumn" in text
    hidden = [broken for broken in exercise["broken"] if broken["source"] == "hidden"]
    assert all(set(broken) == {"rule", "source", "limit_s"} for broken in hidden)


def test_child_is_confined_and_its_environment_scrubbed(monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    target, secret = tmp_path / "made_by_child", tmp_path / "grader" / "rubric.toml"
    secret.parent.mkdir()
    secret.write_text("hidden")
    source = f"""
import os, socket
def probe(what):
    if what == "environment":
        return sorted(os.environ)
    if what == "write":
        open({str(target)!r}, "w")
    if what == "read":
        return open({str(secret)!r}).read()
    if what == "network":
        socket.create_connection(("127.0.0.1", 9), 1)
    if what == "fork":
        return os.fork()
"""
    with ChildServer(denied=(str(secret.parent),)) as server:
        result = server.run([("probe", source)], "probe", [json.dumps([[what], {}]) for what in
                                                          ("environment", "write", "network", "fork", "read")])
        assert "SECRET_TOKEN" not in result.answers[0]["value"]
        if sys.platform == "linux" and all(result.guards.values()):
            errors = [result.answers[number]["error"].split(":")[0] for number in (1, 2, 3, 4)]
            assert (errors[0], errors[2], errors[3]) == ("PermissionError", "BlockingIOError", "PermissionError")
            assert errors[1] in ("PermissionError", "OSError")
    assert not target.exists()


def test_child_that_writes_to_the_answer_pipe_itself_harms_only_its_own_answers(batch):
    folder, release, _ = batch
    source = """
import os
def build_strategy_pair_evidence(baseline, candidates):
    for fd in range(3, 30):
        try:
            os.write(fd, b'\\n' + b'[' * 100000 + b'\\n{"case": 1, "value": ' + b'[' * 900 + b']' * 900 + b'}\\n')
            os.write(fd, b'{"case": 2, "value": "\\\\ud800", "error": 3}\\n{"loaded": 1, "problem": 7}\\nnonsense\\n')
        except OSError:
            pass
    return {}
"""
    kind = KINDS[0]._replace(cells=submission_set.RIGHT | {"ex_pairs": source})
    submitted = folder / "pipe"
    submitted.mkdir()
    (submitted / "mallory\udcff.ipynb").write_text(json.dumps(submission_set.make_submission(kind)))
    shutil.copy(folder / "submitted" / "right.ipynb", submitted / "zoe.ipynb")
    results = grade([submitted], folder / "pipe_out", [release], execute=False, workers=1, limits=LIMITS)
    points = {row["learner"]: [row["exercises"][one]["points"] for one in IDS] for row in results["learners"]}
    assert points == {"mallory?": [4, 0, 2], "zoe": [4, 4, 2]}


def test_refuses_a_batch_without_submissions_and_an_unknown_path(tmp_path, batch):
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="at least one file"):
        grade([tmp_path / "none"], tmp_path / "out", [batch[1]])
    with pytest.raises(InputError, match="not there"):
        grade([tmp_path / "absent"], tmp_path / "out", [batch[1]])
