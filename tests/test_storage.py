from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest

from memstrat.errors import (
    InputError,
    LabelError,
    LabelLockedError,
    MissingRecordError,
    RecordConflictError,
    RecordError,
    StorageError,
)
from memstrat.records import MANIFEST_SCHEMA, InputManifest, TrainingBaseline
from memstrat.storage import ResultsFolder, read_json, read_record, sha256_of, write_once


def make_manifest(**overrides) -> InputManifest:
    values = dict(schema_version=MANIFEST_SCHEMA, run_label="a1", workload_id="w" * 16, hardware_id="h" * 16,
                  inputs=[dict(role="training_baseline", path="benchmarks/results/x.json", sha256="0" * 64,
                               schema_version="v")])
    return InputManifest(**(values | overrides))


@pytest.fixture
def results(tmp_path) -> ResultsFolder:
    return ResultsFolder(tmp_path / "benchmarks" / "results")


def test_files_carry_the_contracts_names(results):
    names = [results.file(kind, "a1", mode).name for kind, mode in (
        ("baseline", "real_gpu"), ("manifest", "cpu_rehearsal"), ("g0", "real_gpu"), ("g0", "cpu_rehearsal"),
        ("g1", "real_gpu"), ("g1", "cpu_rehearsal"), ("decision", "cpu_rehearsal"))]
    assert names == [
        "73_training_baseline_a1.json", "76_input_manifest_a1.json", "76_real_gpu_memory_a1.json",
        "76_cpu_rehearsal_memory_a1.json", "76_real_gpu_memory_boundary_a1.json",
        "76_cpu_rehearsal_memory_boundary_a1.json", "76_memory_strategy_decision_a1.json"]


def test_paths_in_records_are_relative_to_what_holds_benchmarks(results, tmp_path):
    assert results.relative(results.file("manifest", "a1")) == "benchmarks/results/76_input_manifest_a1.json"
    assert results.absolute("benchmarks/results/x.json") == tmp_path / "benchmarks" / "results" / "x.json"
    assert ResultsFolder(tmp_path / "runs").relative(tmp_path / "runs" / "x.json") == "runs/x.json"


def test_results_folder_falls_back_in_the_contracts_order(tmp_path, monkeypatch):
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    inside = tmp_path / "checkout" / "notebooks"
    inside.mkdir()
    monkeypatch.delenv("MEMSTRAT_RESULTS_DIR", raising=False)
    monkeypatch.chdir(inside)
    assert ResultsFolder().path == tmp_path / "checkout" / "benchmarks" / "results"
    monkeypatch.setenv("MEMSTRAT_RESULTS_DIR", str(tmp_path / "env"))
    assert ResultsFolder().path == tmp_path / "env"
    assert ResultsFolder(tmp_path / "flag").path == tmp_path / "flag"


def test_results_folder_outside_a_checkout_is_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MEMSTRAT_RESULTS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert ResultsFolder().path == tmp_path / "benchmarks" / "results"


def test_write_once_round_trips(results):
    path = results.file("manifest", "a1")
    assert write_once(path, make_manifest()) == "written"
    assert read_record(path, InputManifest).inputs[0].sha256 == "0" * 64
    assert [file.name for file in results.path.iterdir()] == ["76_input_manifest_a1.json"]


def test_write_once_same_content_keeps_the_first_file_untouched(results):
    path = results.file("manifest", "a1")
    write_once(path, make_manifest(provenance={"utc": "then"}))
    before = sha256_of(path), path.stat().st_mtime_ns
    assert write_once(path, make_manifest(provenance={"utc": "now"})) == "already_complete"
    assert (sha256_of(path), path.stat().st_mtime_ns) == before


def test_write_once_refuses_other_content_and_names_the_fix(results):
    path = results.file("manifest", "a1")
    write_once(path, make_manifest())
    before = path.read_bytes()
    with pytest.raises(RecordConflictError, match="run again under another label"):
        write_once(path, make_manifest(workload_id="x" * 16))
    assert path.read_bytes() == before


def test_write_once_works_without_hard_links(results, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "no hard links here")
    monkeypatch.setattr(os, "link", refuse)
    path = results.file("manifest", "a1")
    assert write_once(path, make_manifest()) == "written"
    assert write_once(path, make_manifest()) == "already_complete"
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_write_once_full_disk_leaves_nothing(results, monkeypatch):
    results.require_writable()
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="must have free disk space"):
        write_once(results.file("manifest", "a1"), make_manifest())
    assert not [file for file in results.path.iterdir() if file.is_file()]


@pytest.mark.parametrize(("text", "message"), [
    ("", "must be complete JSON"), ('{"a": 1', "must be complete JSON"), ("not json", "must be complete JSON"),
    ('{"loss": NaN}', "the constant NaN"), ('{"loss": Infinity}', "the constant Infinity"),
    ("[]", "must be a JSON object"),
])
def test_read_json_refuses_what_is_no_whole_object(tmp_path, text, message):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=message):
        read_json(path)


@pytest.mark.parametrize("value", ["1e999", '"\\ud800"', "9" * 5000, "[" * 100_000])
def test_read_json_refuses_what_no_record_can_hold(tmp_path, value):
    path = tmp_path / "record.json"
    path.write_text('{"schema_version": "v", "more": %s}' % value)  # noqa: UP031 - braces
    with pytest.raises(RecordError, match="record.json: must be complete JSON, got"):
        read_json(path)


def test_a_folder_in_place_of_a_record_is_refused(results):
    path = results.file("manifest", "a1")
    path.mkdir(parents=True)
    for read in (read_json, sha256_of, lambda path: write_once(path, make_manifest())):
        with pytest.raises(RecordError, match="76_input_manifest_a1.json: must be a file that can be read"):
            read(path)


def test_lock_holds_on_a_full_disk_too(results, monkeypatch):
    def fail(path, *arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with results.lock("a1"), pytest.raises(LabelLockedError, match="held by process unknown"), results.lock("a1"):
        pass


def test_read_record_missing_names_the_file(results):
    with pytest.raises(MissingRecordError, match="76_input_manifest_a1.json: must exist"):
        read_record(results.file("manifest", "a1"), InputManifest)


@pytest.mark.parametrize(("version", "hint"), [
    ("memory-strategy-input-manifest/v2", "It is newer: update memstrat."),
    ("memory-strategy-input-manifest/v0", "It is older: measure again"),
    ("something/v1", "It is no record of this kind"), (None, "It is no record of this kind"),
])
def test_read_record_refuses_other_schema_versions(results, version, hint):
    path = results.file("manifest", "a1")
    write_once(path, make_manifest())
    content = json.loads(path.read_text()) | {"schema_version": version}
    path.write_text(json.dumps(content))
    with pytest.raises(RecordError, match=hint):
        read_record(path, InputManifest)


def test_read_record_tells_an_edit(results):
    path = results.file("manifest", "a1")
    write_once(path, make_manifest())
    path.write_text(path.read_text().replace("w" * 16, "x" * 16))
    with pytest.raises(RecordError, match="It was edited after it was written"):
        read_record(path, InputManifest)


def test_read_record_without_a_content_hash_was_made_elsewhere(results):
    path = results.file("manifest", "a1")
    write_once(path, make_manifest())
    content = json.loads(path.read_text())
    del content["content_sha256"]
    path.write_text(json.dumps(content))
    assert read_record(path, InputManifest).run_label == "a1"


def test_read_record_names_every_field_of_the_wrong_type(results):
    path = results.file("baseline", "a1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema_version": "training-performance-project/v1", "stage": "measurement_baseline",
                                "config": 7, "baseline": {"name": "baseline", "status": "great"}}))
    with pytest.raises(RecordError) as error:
        read_record(path, TrainingBaseline)
    assert "config" in str(error.value) and "baseline.status" in str(error.value)


def test_read_record_refuses_another_stages_file(results):
    path = results.file("baseline", "a1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"schema_version": "training-performance-project/v1", "stage": "other"}))
    with pytest.raises(RecordError, match="stage must be measurement_baseline, got 'other'"):
        read_record(path, TrainingBaseline)


def test_results_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="results_dir: must be a folder"):
        ResultsFolder(tmp_path / "file" / "results").require_writable()


def test_require_mode_keeps_rehearsal_and_gpu_apart(results):
    path = results.file("g0", "a1", "cpu_rehearsal")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    results.require_mode("a1", "cpu_rehearsal")
    with pytest.raises(LabelError, match="whose records are cpu_rehearsal"):
        results.require_mode("a1", "real_gpu")


def _hold(folder, started, finish):
    with ResultsFolder(folder).lock("a1"):
        started.set()
        finish.wait(20)


def test_lock_refuses_a_second_process_and_survives_a_dead_one(results):
    context = multiprocessing.get_context("spawn")
    started, finish = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(results.path, started, finish))
    holder.start()
    try:
        assert started.wait(20)
        with pytest.raises(LabelLockedError, match=f"held by process {holder.pid}"), results.lock("a1"):
            pass
        with results.lock("a2"):
            pass
        holder.kill()
        holder.join()
        with results.lock("a1"):
            pass
    finally:
        holder.kill()
