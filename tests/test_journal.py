from __future__ import annotations

import errno
import json
import os

import pytest

from memstrat.errors import IdentityMismatchError, RecordError, StorageError
from memstrat.journal import Journal
from memstrat.records import Run

HEADER = {"identity": {"seq_len": 64, "seed": 42}, "hardware_id": "h1", "packages": {"torch": "2.13.0"}}


def make_run(name: str = "baseline", repeat: int = 0, **overrides) -> Run:
    return Run(**{"name": name, "repeat": repeat, "seq_len": 64, "optimizer": "AdamW", "status": "ok"} | overrides)


@pytest.fixture
def path(tmp_path):
    """A journal of two runs, the second with every kind of line break in its traceback."""
    path = tmp_path / "made" / "g0.jsonl"
    journal = Journal(path, HEADER)
    journal.add(make_run(step_times_ms=[1.5, 2.25]))
    journal.add(make_run("hybrid", status="failed", traceback="a\nb\r\nc\u2028d\x85e\x1ff \u00e9"))
    return path


def test_runs_come_back_as_they_were(path):
    assert Journal(path, HEADER).runs == [
        make_run(step_times_ms=[1.5, 2.25]),
        make_run("hybrid", status="failed", traceback="a\nb\r\nc\u2028d\x85e\x1ff \u00e9")]


def test_find_tells_name_repeat_and_length_apart(path):
    journal = Journal(path, HEADER)
    assert journal.find("baseline", 0, 64).step_times_ms == [1.5, 2.25]
    assert [journal.find(*key) for key in (("offload", 0, 64), ("baseline", 1, 64), ("baseline", 0, 96))] == [None] * 3


def test_a_line_torn_anywhere_costs_that_run_alone(path):
    whole = path.read_bytes()
    start = whole[:-1].rindex(b"\n") + 1
    for end in (*range(start, len(whole), 9), len(whole) - 1):
        path.write_bytes(whole[:end])
        assert [run.name for run in Journal(path, HEADER).runs] == ["baseline"]
        assert path.read_bytes() == whole[:start]


def test_a_torn_header_begins_anew(path):
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    assert Journal(path, HEADER).runs == []
    assert path.read_bytes() == whole[:whole.index(b"\n") + 1]


def test_a_resumed_journal_goes_on_behind_the_last_whole_line(path):
    path.write_bytes(path.read_bytes() + b'{"name": "off')
    Journal(path, HEADER).add(make_run("offload"))
    assert [run.name for run in Journal(path, HEADER).runs] == ["baseline", "hybrid", "offload"]


def test_another_identity_machine_or_package_set_is_refused_with_each_difference(path):
    torn = path.read_bytes() + b'{"torn'
    path.write_bytes(torn)
    other = {"identity": {"seq_len": 96, "seed": 42}, "hardware_id": "h2", "packages": {"torch": "2.14.0"}}
    with pytest.raises(IdentityMismatchError) as caught:
        Journal(path, other)
    assert caught.value.differences == {
        "identity.seq_len": (96, 64), "hardware_id": ("h2", "h1"), "packages.torch": ("2.14.0", "2.13.0")}
    assert str(caught.value).splitlines() == [
        "g0.jsonl: must agree in every identity field, got 3 difference(s).",
        "  hardware_id: 'h2' here, 'h1' there",
        "  identity.seq_len: 96 here, 64 there",
        "  packages.torch: '2.14.0' here, '2.13.0' there",
        "Continue on the machine, with the packages and flags it was begun with, or choose another label."]
    assert path.read_bytes() == torn


@pytest.mark.parametrize("edit", [b"not json", b"\xff\xfe", b'{"name": "baseline"}', b'{"step_time_ms": NaN}', b"3",
                                  b"null", b"[" * 100_000, b'{"note": 1}'])
def test_an_edited_line_is_refused_and_left_as_it_is(path, edit):
    lines = path.read_bytes().split(b"\n")
    edited = b"\n".join([lines[0], edit, *lines[2:]])
    path.write_bytes(edited)
    with pytest.raises(RecordError, match=r"^g0\.jsonl: must be one JSON object a line"):
        Journal(path, HEADER)
    assert path.read_bytes() == edited


def test_a_full_disk_leaves_whole_lines_only(path, monkeypatch):
    journal, before = Journal(path, HEADER), path.read_bytes()

    def fail(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="disk"):
        journal.add(make_run("offload"))
    assert path.read_bytes() == before
    assert journal.find("offload", 0, 64) is None


def test_close_removes_the_file(path):
    Journal(path, HEADER).close()
    assert not path.exists()


def test_the_header_line_carries_a_version(path):
    header = json.loads(path.read_text(encoding="utf-8").split("\n")[0])
    assert header.pop("line_sha256") == "2d27c8b93fe7129086252c79de65ad62d88ad5f29ea61a02fbb156e684c1fa0d"
    assert header == {"journal_version": 1, **HEADER}


def test_an_edited_figure_is_refused(path):
    edited = path.read_bytes().replace(b"2.25", b"1.25")
    path.write_bytes(edited)
    with pytest.raises(RecordError, match="a line whose content does not hash to its line_sha256"):
        Journal(path, HEADER)
    assert path.read_bytes() == edited


def test_a_folder_in_place_of_the_journal_is_refused(tmp_path):
    with pytest.raises(StorageError, match="must be writable, got Is a directory"):
        Journal(tmp_path, HEADER)
