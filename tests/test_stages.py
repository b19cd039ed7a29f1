"""The stages from label to decision, with planned figures in place of measurements."""

from __future__ import annotations

import functools
import json
import os

import pytest

from memstrat import stages
from memstrat.errors import (
    DeviceError,
    IdentityMismatchError,
    InputError,
    LabelError,
    LabelLockedError,
    MissingRecordError,
    ModelError,
    NotReadyError,
    RecordConflictError,
    RecordError,
    UnknownNameError,
)
from memstrat.runner import Runner
from memstrat.stages._g1 import estimate_baseline_mb
from memstrat.stages._session import open_session
from memstrat.storage import ResultsFolder, sha256_of
from tests.fake_measure import plan_stages

PLENTY_MB = 100_000.0


@pytest.fixture(autouse=True)
def planned_figures(monkeypatch, tmp_path):
    plan_stages(monkeypatch)
    monkeypatch.setattr("memstrat.stages._g1.estimate_baseline_mb", lambda session, seq_len: None)
    monkeypatch.setenv("MEMSTRAT_RESULTS_DIR", str(tmp_path / "benchmarks" / "results"))
    monkeypatch.setenv("MEMSTRAT_TEST_LOG", str(tmp_path / "log"))


@pytest.fixture
def plan(monkeypatch):
    return lambda **what: monkeypatch.setenv("MEMSTRAT_TEST_PLAN", json.dumps(what))


@pytest.fixture
def results() -> ResultsFolder:
    return ResultsFolder()


@pytest.fixture
def measured(tmp_path):
    def lines() -> list[str]:
        log = tmp_path / "log"
        return log.read_text().splitlines() if log.exists() else []
    return lines


def run_g0(label="a1", **flags):
    return stages.g0(label, preset="tiny", device="cpu", say=lambda _: None, **flags)


def run_g1(label="a1", free_mb=PLENTY_MB, **flags):
    return stages.g1(label, preset="tiny", device="cpu", say=lambda _: None, free_memory_mb=lambda: free_mb, **flags)


def edit(path, **changes):
    """Edit a record as somebody with a text editor would: hashes stay as they were."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- the whole path -------------------------------------------------------------------------------

def test_stages_lead_from_label_to_decision(results):
    g0 = run_g0()
    assert g0["g0_reused"] is False and g0["record_state"] == "written"
    assert [row["name"] for row in g0["candidates"]] == ["baseline", "checkpoint", "offload", "hybrid"]
    assert g0["summary"]["best_candidate"] == "offload"  # the lowest peak that keeps 0.4 of the throughput
    assert g0["summary"]["memory_saving_mb"] == 12.0
    assert g0["quality_floor"] == {"max_val_loss": 2.55, "source": "baseline_eval_loss"}
    g1 = run_g1()
    assert (g1["status"], g1["summary"]["tested_seq_lens"]) == ("completed", [256, 384, 512])
    assert [record["source"] for record in g1["length_records"]] == ["g1_sgd_baseline", "g1_sgd", "g1_sgd"]
    assert g1["source_g0_sha256"] == sha256_of(results.file("g0", "a1", "cpu_rehearsal"))
    review = stages.review("a1")
    assert review["ready_for_decision"] and review["problems"] == []
    decision = stages.close("a1")
    assert decision["decision"] == {"decision": "accept", "reason": "strategy_is_best_feasible_option",
                                    "next_action": "promote_to_training_run"}
    assert decision["handoff"] == {"consumer": "75_memory_budget_compression", "status": "rehearsal_only"}
    mechanism = decision["decision_scopes"]["activation_memory_mechanism"]
    assert mechanism["scope"] == "activation_memory_isolation"
    assert mechanism["promotable_to_full_training"] is False
    assert mechanism["tested_seq_lens"] == [256, 384, 512]
    assert sorted(path.name for path in results.path.glob("*.json")) == [
        "73_training_baseline_a1.json", "76_cpu_rehearsal_memory_a1.json",
        "76_cpu_rehearsal_memory_boundary_a1.json", "76_input_manifest_a1.json",
        "76_memory_strategy_decision_a1.json"]


def test_records_hold_the_contracts_keys():
    g0, g1 = run_g0(), run_g1()
    assert {"run_label", "run_mode", "task", "stage", "g0_reused", "environment_preflight", "source_baseline",
            "source_baseline_sha256", "baseline_validation", "evidence_level", "config", "budget", "quality_floor",
            "candidates", "summary", "repeat_summary", "experiment", "standard_metrics"} <= g0.keys()
    assert set(g0["experiment"]) == {"model", "backend", "dtype", "optimizer", "batch_size", "seq_len", "warmup",
                                     "iters", "seed", "device", "torch", "cuda", "workload"}
    assert {"status", "ready", "reasons", "next_actions"} <= g0["environment_preflight"].keys()
    assert {"source_g0", "source_g0_sha256", "status", "admission", "length_records", "summary",
            "assessment"} <= g1.keys()
    config = g1["config"]
    assert (config["optimizer"], config["optimizer_lr"], config["optimizer_momentum"]) == ("SGD", 1e-4, 0.0)
    assert (config["warmup"], config["iters"], config["repeats"]) == (1, 3, 3)
    assert config["seq_lens"] == [256, 384, 512]
    assert config["comparison_scope"] == "activation_memory_isolation"


def test_records_name_no_path_of_this_machine(results, tmp_path):
    run_g0()
    run_g1()
    stages.close("a1")
    for path in results.path.glob("*.json"):
        assert str(tmp_path) not in path.read_text()
        assert os.path.expanduser("~") + "/" not in path.read_text()


def test_baseline_report_has_the_contracts_config():
    report = stages.baseline("a1", preset="tiny", device="cpu")
    config = report["config"]
    expected = {"model_id": "memstrat/tiny-qwen2", "batch_size": 1, "seq_len": 256, "dtype": "float32",
                "optimizer": "AdamW", "workload": "tiny", "warmup": 2, "iters": 5}
    assert {key: config[key] for key in expected} == expected
    assert "amp_dtype" not in config and "strategies" not in config


def test_baseline_report_of_bf16_names_the_amp_dtype():
    config = stages.baseline("a1", preset="tiny", device="cpu", dtype_mode="bf16")["config"]
    assert (config["amp_dtype"], config["mode"]) == ("torch.bfloat16", "bf16_probe")


# --- reuse and write-once -------------------------------------------------------------------------

def test_g0_with_a_finished_record_measures_nothing(measured, results):
    first = run_g0()
    before = len(measured()), sha256_of(results.file("g0", "a1", "cpu_rehearsal"))
    again = run_g0()
    assert again["g0_reused"] is True and again["record_state"] == "already_complete"
    assert again["candidates"] == first["candidates"]
    assert (len(measured()), sha256_of(results.file("g0", "a1", "cpu_rehearsal"))) == before


def test_g0_of_another_identity_is_refused_with_every_difference():
    run_g0()
    with pytest.raises(IdentityMismatchError) as error:
        run_g0(iters=6, seed=7)
    assert set(error.value.differences) == {"iters", "seed", "data_sha256"}
    assert error.value.differences["iters"] == (6, 5)


def test_baseline_again_is_already_complete(measured):
    stages.baseline("a1", preset="tiny", device="cpu")
    assert measured() == ["baseline 0 256", "baseline 1 256", "baseline 2 256"]
    assert stages.baseline("a1", preset="tiny", device="cpu")["record_state"] == "already_complete"
    assert len(measured()) == 3


def test_g1_twice_is_refused_and_changes_nothing(results):
    run_g0()
    run_g1()
    before = sha256_of(results.file("g1", "a1", "cpu_rehearsal"))
    with pytest.raises(RecordConflictError, match="must not exist yet"):
        run_g1()
    assert sha256_of(results.file("g1", "a1", "cpu_rehearsal")) == before


def test_close_twice_is_already_complete():
    run_g0()
    run_g1()
    stages.close("a1")
    assert stages.close("a1")["record_state"] == "already_complete"


def test_close_over_another_decision_is_refused(results):
    run_g0()
    run_g1()
    stages.close("a1")
    path = results.file("decision", "a1")
    edit(path, handoff={"consumer": "75_memory_budget_compression", "status": "accept"})
    before = path.read_bytes()
    with pytest.raises(RecordConflictError, match="run again under another label"):
        stages.close("a1")
    assert path.read_bytes() == before


# --- order and ready ------------------------------------------------------------------------------

def test_g1_without_g0_is_refused_before_anything_is_measured(measured):
    with pytest.raises(MissingRecordError, match="Run memstrat g0 --label a1 first"):
        run_g1()
    assert measured() == []


def test_g1_with_another_identitys_g0_is_refused():
    run_g0()
    with pytest.raises(IdentityMismatchError, match="iters"):
        run_g1(iters=9)


def test_close_lists_every_problem():
    with pytest.raises(NotReadyError) as error:
        stages.close("a1")
    assert len(error.value.problems) == 2
    assert "Run memstrat g0" in error.value.problems[0] and "Run memstrat g1" in error.value.problems[1]


def test_review_of_an_empty_label_lists_what_is_missing(results):
    review = stages.review("a1")
    assert review["g1_status"] == "not_recorded" and review["g0_path"] is None
    assert review["ready_for_decision"] is False and len(review["problems"]) == 2
    assert not results.path.exists()


def test_review_notices_a_g0_edited_after_g1(results):
    run_g0()
    run_g1()
    path = results.file("g0", "a1", "cpu_rehearsal")
    path.write_text(path.read_text() + "\n")  # same content, other bytes
    assert any("source_g0_sha256" in problem for problem in stages.review("a1")["problems"])


@pytest.mark.parametrize("kind", ["baseline", "manifest"])
def test_review_notices_an_edited_source(results, kind):
    run_g0()
    run_g1()
    path = results.file(kind, "a1")
    path.write_text(path.read_text() + "\n")
    problems = stages.review("a1")["problems"]
    assert any("SHA-256 must be" in problem and path.name in problem for problem in problems)
    with pytest.raises(NotReadyError):
        stages.close("a1")


def test_close_refuses_a_record_without_path_fields(results):
    run_g0()
    run_g1()
    path = results.file("g0", "a1", "cpu_rehearsal")
    content = json.loads(path.read_text())
    del content["content_sha256"]
    for row in content["candidates"]:
        del row["execution_path_verified"]
    path.write_text(json.dumps(content))
    with pytest.raises(NotReadyError, match="shown, never decided"):
        stages.close("a1")


@pytest.mark.parametrize(("config", "message"), [
    ({"strategies": 3}, "candidates must hold every strategy of its config, got none for an empty list"),
    ({"strategies": [["baseline"]]}, "candidates must hold every strategy of its config, got none for an empty list"),
    ({"strategies": "baseline"}, "candidates must hold every strategy of its config, got none for an empty list"),
    ({"repeats": None}, "config.repeats must be a whole number above 0, got None"),
    ({"repeats": "many"}, "config.repeats must be a whole number above 0, got 'many'"),
])
def test_close_refuses_a_config_that_is_no_plan(config, message, results):
    path = results.file("g0", "a1", "cpu_rehearsal")
    record = run_g0()
    run_g1()
    edit(path, content_sha256=None, config=record["config"] | config)
    edit(results.file("g1", "a1", "cpu_rehearsal"), content_sha256=None, source_g0_sha256=sha256_of(path))
    with pytest.raises(NotReadyError) as error:
        stages.close("a1")
    assert len(error.value.problems) == 1 and message in error.value.problems[0]


def test_a_record_copied_under_another_label_is_refused(results, measured):
    run_g0()
    for kind in ("g0", "baseline"):
        copy = results.file(kind, "a2", "cpu_rehearsal")
        copy.write_bytes(results.file(kind, "a1", "cpu_rehearsal").read_bytes())
    before = measured()
    for call in (run_g0, run_g1, lambda label: stages.baseline(label, preset="tiny", device="cpu")):
        with pytest.raises(RecordError, match="run_label must be 'a2', got 'a1'"):
            call("a2")
    assert measured() == before and not results.file("manifest", "a2").exists()


def test_a_rehearsal_edited_into_a_gpu_result_is_refused(results):
    run_g0()
    edit(results.file("g0", "a1", "cpu_rehearsal"), content_sha256=None, run_mode="real_gpu")
    with pytest.raises(RecordError, match="run_mode must be 'cpu_rehearsal', got 'real_gpu'"):
        run_g0()


def test_close_of_an_incomplete_g0_asks_for_another_run(plan):
    plan(offload={"oom_repeats": [2]})
    g0 = run_g0()
    row = next(row for row in g0["candidates"] if row["name"] == "offload")
    assert (row["status"], row["successful_runs"], row["oom_runs"]) == ("partial_oom", 2, 1)
    run_g1()
    decision = stages.close("a1")["g0_decision"]
    assert decision["reason"] == "g0_incomplete_repeats"
    assert decision["next_action"] == "rerun_g0_with_a_new_label_after_freeing_gpu_memory"
    assert decision["incomplete_candidates"] == ["offload"]


# --- failures are rows ----------------------------------------------------------------------------

def test_g0_keeps_out_of_memory_and_crashes_as_rows(plan, monkeypatch):
    monkeypatch.setattr("memstrat.stages._g0.Runner", functools.partial(Runner, target="tests.fake_measure:measure"))
    plan(offload="oom", hybrid="crash")
    rows = {row["name"]: row for row in run_g0()["candidates"]}
    assert (rows["offload"]["status"], rows["offload"]["oom_runs"]) == ("oom", 3)
    assert (rows["hybrid"]["status"], rows["hybrid"]["failed_runs"]) == ("failed", 3)
    assert rows["hybrid"]["runs"][0]["reason"] == "exited with code 7"
    assert "MemoryError" in rows["offload"]["runs"][0]["traceback"]
    assert rows["checkpoint"]["status"] == "ok"


def test_g0_fails_a_strategy_that_is_not_the_same_step(plan):
    plan(checkpoint={"step1_grad_norm": 1.3})
    summary = run_g0()["summary"]
    assert "checkpoint" not in summary["feasible_names"]
    assert summary["invalid_count"] == 1


def test_g0_never_prefers_an_unproven_path(plan):
    plan(offload={"execution_path_verified": False, "path_problems": ["packed tensors must be more than 0, got 0"]})
    summary = run_g0()["summary"]
    assert "offload" not in summary["feasible_names"] and summary["best_candidate"] == "hybrid"


def test_g0_without_an_ok_baseline_has_null_savings(plan):
    plan(baseline="oom")
    g0 = run_g0()
    assert g0["quality_floor"]["max_val_loss"] is None
    assert g0["summary"]["memory_saving_mb"] is None and g0["summary"]["baseline_peak_memory_mb"] is None


# --- the ladder -----------------------------------------------------------------------------------

def test_g1_admits_by_linear_projection_and_stops_at_the_first_refusal():
    run_g0()
    # margin: the larger of 2048 MiB and 15 % of the device, so leave it and room for 46 MiB
    margin = run_g1("a1", free_mb=0.0)["admission"]["safety_margin_mb"]
    run_g0("a2")
    g1 = run_g1("a2", free_mb=margin + 46.0)
    checks = g1["admission"]["checks"]
    assert [(check["seq_len"], check["status"]) for check in checks] == [(384, "admitted"), (512, "blocked")]
    assert [check["projected_peak_mb"] for check in checks] == [45.0, 60.0]  # 30 x 384/256, 45 x 512/384
    assert checks[1]["safe_process_limit_mb"] == pytest.approx(46.0)
    assert g1["status"] == "completed_with_safety_boundary"
    assert [record["seq_len"] for record in g1["length_records"]] == [256, 384]
    assert "length_ladder_stopped_at_the_safety_boundary" in (
        stages.close("a2")["decision_scopes"]["activation_memory_mechanism"]["limitations"])


@pytest.mark.parametrize(("estimated_mb", "status", "admitted_by"), [
    (50.0, "admitted", ["projection", "estimate"]), (61.0, "blocked", ["projection"])])
def test_g1_admits_only_what_projection_and_estimate_both_allow(estimated_mb, status, admitted_by, monkeypatch):
    run_g0()
    monkeypatch.setattr("memstrat.stages._g1.estimate_baseline_mb", lambda session, seq_len: estimated_mb)
    monkeypatch.setattr("memstrat.stages._g1.MARGIN_RATIO", 0.0)
    check = run_g1(free_mb=2048 + 60.0)["admission"]["checks"][0]
    assert (check["status"], check["admitted_by"], check["estimated_peak_mb"]) == (status, admitted_by, estimated_mb)


def test_estimate_of_the_base_length_is_what_sgd_peaks_at_on_tiny():
    session = open_session("a1", preset="tiny", device="cpu")
    assert estimate_baseline_mb(session, 256) == pytest.approx(23.72, abs=0.05)  # measured: 23.72 MiB


def test_g1_is_blocked_if_no_longer_length_is_admitted():
    run_g0()
    g1 = run_g1(free_mb=0.0)
    assert (g1["status"], g1["admission"]["status"]) == ("blocked", "blocked")
    assert [record["seq_len"] for record in g1["length_records"]] == [256]
    assert g1["assessment"]["decision"] == "blocked"
    assert stages.close("a1")["g1_decision"]["reason"] == "safety_headroom_guard"


def test_g1_is_blocked_if_the_base_baseline_fails(plan):
    run_g0()
    plan(baseline="oom")
    g1 = run_g1()
    assert (g1["status"], g1["reason"]) == ("blocked", "base_length_baseline_failed")
    assert len(g1["length_records"]) == 1
    assert {row["name"]: row["status"] for row in g1["length_records"][0]["candidates"]} == {
        "baseline": "oom", "checkpoint": "ok", "offload": "ok", "hybrid": "ok"}


def test_g1_keeps_what_ran_beyond_the_baseline(plan):
    run_g0()
    plan(**{"baseline@384": "oom"})
    g1 = run_g1()
    assert g1["status"] == "completed_with_safety_boundary"
    assert [record["seq_len"] for record in g1["length_records"]] == [256, 384]
    assert g1["summary"]["ran_beyond_baseline"] == ["checkpoint", "offload", "hybrid"]
    assert g1["assessment"] == {"decision": "measure", "reason": "too_few_lengths",
                                "next_action": "extend_the_ladder_safely"}


# --- baseline, manifest ---------------------------------------------------------------------------

def test_g0_rests_on_another_labels_manifest(results, measured):
    stages.baseline("base", preset="tiny", device="cpu")
    g0 = run_g0(manifest=results.file("manifest", "base"))
    assert g0["source_baseline"] == "benchmarks/results/73_training_baseline_base.json"
    assert sum(line.startswith("baseline") for line in measured()) == 6
    run_g1()
    assert stages.review("a1")["ready_for_decision"]


def test_g0_refuses_a_baseline_of_another_workload(results):
    stages.baseline("base", preset="tiny", device="cpu")
    with pytest.raises(IdentityMismatchError) as error:
        run_g0(manifest=results.file("manifest", "base"), warmup=4, seq_len=128, dtype_mode="bf16")
    assert set(error.value.differences) == {"warmup", "seq_len", "data_sha256", "amp_dtype", "mode"}


def test_g0_refuses_a_missing_manifest_and_an_edited_baseline(results, tmp_path):
    with pytest.raises(MissingRecordError, match="absent.json: must exist"):
        run_g0(manifest=tmp_path / "absent.json")
    stages.baseline("base", preset="tiny", device="cpu")
    report = results.file("baseline", "base")
    report.write_text(report.read_text() + " ")
    with pytest.raises(RecordError, match="SHA-256 must be the manifest's"):
        run_g0(manifest=results.file("manifest", "base"))


def test_g0_refuses_a_baseline_of_another_machine(results, monkeypatch):
    stages.baseline("base", preset="tiny", device="cpu")
    monkeypatch.setattr("memstrat.stages._session.hardware_id", lambda facts: "f" * 16)
    with pytest.raises(IdentityMismatchError, match="hardware_id"):
        run_g0(manifest=results.file("manifest", "base"))


# --- refusals before anything runs ----------------------------------------------------------------

@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda: run_g0("replace_with_unique_label"), LabelError, "placeholder"),
    (lambda: run_g1("replace_with_unique_label"), LabelError, "placeholder"),
    (lambda: stages.close("replace_with_unique_label"), LabelError, "placeholder"),
    (lambda: run_g0("../up"), LabelError, "must be 1 to 64 letters"),
    (lambda: stages.g0("a1", preset="huge"), UnknownNameError, "preset: must be one of"),
    (lambda: stages.g0("a1", device="tpu"), UnknownNameError, "device: must be one of auto, cpu, cuda"),
    (lambda: run_g0(strategies=["baseline", "magic"]), InputError, "unknown: magic"),
    (lambda: run_g0(ladder=[128]), InputError, "ladder: must be strictly increasing"),
    (lambda: run_g0(memory_cap_mb=-1.0), InputError, "memory_cap_mb: must be greater than 0"),
    (lambda: run_g0(ladder=[384, 4096]), ModelError, "seq_len"),
    (lambda: stages.g0("a1", model="some/model", device="cpu"), InputError, "memory_cap_mb: must be given"),
])
def test_refusals_come_before_anything_is_measured(call, error, message, measured, results):
    with pytest.raises(error, match=message):
        call()
    assert measured() == [] and not list(results.path.glob("*.json"))


def test_cuda_asked_for_and_absent_is_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DeviceError, match="sees no GPU"):
        stages.g0("a1", device="cuda")


def test_a_rehearsals_label_is_refused_on_a_gpu(monkeypatch):
    run_g0()
    monkeypatch.setattr("memstrat.stages._session.resolve_device", lambda device: "cuda")
    with pytest.raises(LabelError, match="whose records are cpu_rehearsal"):
        stages.g0("a1", preset="tiny")
    with pytest.raises(LabelError, match="whose records are cpu_rehearsal"):
        stages.g1("a1", preset="tiny")


def test_a_label_in_use_is_refused_while_its_holder_lives(results, measured):
    with results.lock("a1"), pytest.raises(LabelLockedError, match="must not be in use"):
        run_g0()
    assert measured() == []


def test_truncated_g0_is_refused_and_left_alone(results):
    run_g0()
    path = results.file("g0", "a1", "cpu_rehearsal")
    path.write_bytes(path.read_bytes()[:500])
    before = path.read_bytes()
    for call in (run_g0, run_g1):
        with pytest.raises(RecordError, match="must be complete JSON"):
            call()
    assert path.read_bytes() == before


# --- prepare --------------------------------------------------------------------------------------

def test_prepare_writes_nothing_and_accepts_the_placeholder(results):
    state = stages.prepare(preset="tiny", device="cpu")
    assert state["ready"] and state["manifest"]["status"] == "missing"
    assert not results.path.exists()


def test_prepare_says_which_command_comes_next():
    assert "memstrat g0 --label a1" in stages.prepare("a1", preset="tiny", device="cpu")["next_actions"][-1]
    run_g0()
    assert "memstrat g1 --label a1" in stages.prepare("a1", preset="tiny", device="cpu")["next_actions"][-1]
    run_g1()
    assert "memstrat close --label a1" in stages.prepare("a1", preset="tiny", device="cpu")["next_actions"][-1]


def test_prepare_repeats_no_preset_that_was_not_given(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    actions = stages.prepare("a1", device="cpu", model=str(tmp_path), seq_len=64)["next_actions"]
    assert actions[-1] == "Run memstrat g0 --label a1, with the flags given here."
    assert stages.prepare("a1", preset="tiny")["next_actions"][-1] == "Run memstrat g0 --label a1 --preset tiny."


def test_prepare_reports_a_missing_model(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen2"}')
    state = stages.prepare("a1", preset="tiny", device="cpu", model=str(tmp_path / "model"), weights="pretrained")
    assert state["ready"] is False
    assert any("safetensors" in problem or "weights" in problem for problem in state["problems"])


# --- stopped and continued ------------------------------------------------------------------------

class Stopped(Exception):
    pass


def stop_after(number, monkeypatch):
    """Let the parent end after this many finished runs, as a kill would."""
    add, count = __import__("memstrat.journal", fromlist=["Journal"]).Journal.add, [0]

    def counted(self, run):
        if count[0] == number:
            raise Stopped
        count[0] += 1
        add(self, run)
    monkeypatch.setattr("memstrat.journal.Journal.add", counted)


@pytest.mark.parametrize("number", [0, 2, 5, 11, 14])
def test_a_stopped_g0_continues_where_it_was(number, monkeypatch, measured):
    with monkeypatch.context() as patch:
        stop_after(number, patch)
        with pytest.raises(Stopped):
            run_g0()
    assert len(measured()) == number + 1  # the run under way left no row
    g0 = run_g0()
    assert [row["successful_runs"] for row in g0["candidates"]] == [3, 3, 3, 3]
    assert len(measured()) == 3 + 12 + 1


def test_a_g0_stopped_once_its_record_is_written_leaves_no_journal(monkeypatch, results):
    with monkeypatch.context() as patch:
        patch.setattr("memstrat.journal.Journal.close", lambda self: None)
        run_g0()
    assert len(list((results.path / ".memstrat").glob("*.jsonl"))) == 2  # the baseline's and g0's
    assert run_g0()["g0_reused"] is True
    stages.baseline("a1", preset="tiny", device="cpu")
    assert not list((results.path / ".memstrat").glob("*.jsonl"))


def test_a_stopped_g1_keeps_what_it_was_admitted_by(monkeypatch):
    run_g0()
    with monkeypatch.context() as patch:
        stop_after(13, patch)  # one run into length 384
        with pytest.raises(Stopped):
            run_g1(free_mb=PLENTY_MB)
    checks = run_g1(free_mb=PLENTY_MB / 2)["admission"]["checks"]
    assert [check["free_memory_mb"] for check in checks] == [PLENTY_MB, PLENTY_MB / 2]


def test_a_journal_of_other_packages_is_refused_with_each_difference(monkeypatch):
    with monkeypatch.context() as patch:
        stop_after(4, patch)
        with pytest.raises(Stopped):
            run_g0()
    monkeypatch.setattr("memstrat.stages._session.package_versions",
                        lambda: {"torch": "9.9", "transformers": "9.9"})
    with pytest.raises(IdentityMismatchError, match="packages.torch") as error:
        run_g0()
    assert "packages.transformers" in error.value.differences
