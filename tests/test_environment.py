from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from memstrat import environment, processes
from memstrat.environment import (
    check_dtype,
    free_memory_mb,
    hardware_facts,
    hardware_id,
    package_versions,
    preflight,
    provenance,
    resolve_device,
)
from memstrat.errors import DeviceError, ProcessError, UnknownNameError
from memstrat.experiment import load_experiment

GPU = {"device": "NVIDIA A10", "total_memory_mb": 22731.0, "capability": "8.6", "torch": "2.13.0+cu126"}


def make_experiment(**overrides):
    return load_experiment("tiny", **overrides)


@pytest.fixture
def gpu(monkeypatch):
    """A machine with a GPU, as far as the questions to it go. Returns the facts, to be changed."""
    facts, free_bytes = dict(GPU), 20_000 * 2**20
    answers = {"memstrat.environment:_read_cuda_facts": lambda: facts,
               "memstrat.environment:_read_free_cuda_bytes": lambda: free_bytes}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(processes, "call", lambda target: answers[target]())
    environment._cuda_facts.cache_clear()
    yield facts
    environment._cuda_facts.cache_clear()


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_auto_takes_the_gpu_where_there_is_one(gpu):
    assert [resolve_device(name) for name in ("auto", "cuda", "cpu")] == ["cuda", "cuda", "cpu"]


def test_auto_takes_the_cpu_otherwise(no_gpu):
    assert [resolve_device(name) for name in ("auto", "cpu")] == ["cpu", "cpu"]


def test_an_absent_gpu_is_refused_with_the_next_step(no_gpu, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceError) as caught:
        resolve_device("cuda")
    assert str(caught.value) == (
        "device: must be there, got 'cuda' and torch 2.13.0+cpu (built without CUDA) sees no GPU. "
        "Rehearse with --device cpu, or install a CUDA build of torch on a machine with a GPU.")


def test_an_unknown_device_is_refused():
    with pytest.raises(UnknownNameError, match=r"^device: must be one of auto, cpu, cuda, got 'tpu'\."):
        resolve_device("tpu")


def test_hardware_facts_of_a_cpu_are_its_model_and_ram(monkeypatch):
    monkeypatch.setattr(environment, "total_ram_bytes", lambda: 3 * 2**30)
    facts = hardware_facts("cpu")
    assert list(facts) == ["device", "total_memory_mb", "capability", "torch"]
    assert (facts["total_memory_mb"], facts["capability"], facts["torch"]) == (3072.0, None, torch.__version__)
    assert facts["device"]
    assert re.search(r"\d", facts["torch"])


def test_hardware_facts_of_a_gpu_are_asked_of_a_child_once(gpu, monkeypatch):
    assert hardware_facts("cuda") == GPU
    monkeypatch.setattr(processes, "call", None)
    assert hardware_facts("cuda") == GPU


def test_hardware_id_follows_its_four_facts_alone():
    assert hardware_id(GPU) == "fa32d044eb882cb7"
    assert hardware_id({**GPU, "load": 3}) == hardware_id(GPU)
    for key, value in {"device": "NVIDIA A100", "total_memory_mb": 1.0, "capability": "9.0", "torch": "2.6"}.items():
        assert hardware_id({**GPU, key: value}) != hardware_id(GPU)


def test_package_versions_name_what_a_measurement_depends_on():
    versions = package_versions()
    assert list(versions) == ["python", "torch", "transformers", "numpy", "tokenizers", "cuda"]
    assert versions["torch"] == torch.__version__
    assert re.fullmatch(r"3\.1[123]\.\d+", versions["python"])


def test_provenance_tells_when_with_what_and_under_which_load():
    facts = provenance()
    assert set(facts) == {"utc", "platform", "memstrat", "packages", "git_commit", "git_dirty", "num_threads",
                          "num_cores", "load_average"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", facts["utc"])
    assert facts["num_threads"] == torch.get_num_threads()
    assert len(facts["load_average"]) == 3


def test_provenance_holds_no_path_host_or_user():
    text = json.dumps(provenance())
    for secret in (str(Path.home()), str(Path(environment.__file__).parent.parent), os.getcwd(), getpass.getuser(),
                   socket.gethostname()):
        assert len(secret) < 4 or secret not in text


def test_git_state_tells_commit_and_changes(tmp_path, monkeypatch):
    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    monkeypatch.setattr(environment, "__file__", str(tmp_path / "environment.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert environment._git_state() == {"git_commit": None, "git_dirty": None}
    (tmp_path / "file").write_text("one")
    git("init", "--quiet")
    git("add", "file")
    git("commit", "--quiet", "--message", "one")
    (tmp_path / "untracked").write_text("a new record is no change of the code")
    assert environment._git_state() == {"git_commit": git("rev-parse", "HEAD"), "git_dirty": False}
    (tmp_path / "file").write_text("two")
    assert environment._git_state() == {"git_commit": git("rev-parse", "HEAD"), "git_dirty": True}


def test_free_memory_of_a_cpu_is_the_available_ram(monkeypatch):
    monkeypatch.setattr(environment, "available_ram_bytes", lambda: 5 * 2**20)
    assert free_memory_mb("cpu") == 5.0


def test_free_memory_of_a_gpu_is_asked_of_a_child(gpu):
    assert free_memory_mb("cuda") == 20_000.0


@pytest.mark.parametrize(("capability", "refused"), [("7.5", True), ("8.0", False), ("10.0", False), (None, False)])
def test_bf16_needs_a_gpu_that_has_it_natively(capability, refused):
    workload = make_experiment(dtype_mode="bf16").workload
    facts = {**GPU, "device": "Tesla T4", "capability": capability}
    if not refused:
        check_dtype(workload, facts)
        return
    with pytest.raises(DeviceError) as caught:
        check_dtype(workload, facts)
    assert str(caught.value) == (
        "dtype_mode: must be fp32 on Tesla T4, got 'bf16', which needs compute capability 8.0 and this GPU has 7.5. "
        "Add --dtype-mode fp32.")


def test_fp32_runs_on_any_gpu():
    check_dtype(make_experiment().workload, {**GPU, "capability": "6.0"})


def test_preflight_of_a_ready_machine_gives_its_facts(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.5, 0.5, 0.5))
    report = preflight(make_experiment(), "cpu")
    assert (report["status"], report["ready"], report["reasons"], report["next_actions"]) == ("ready", True, [], [])
    assert report["warnings"] == []
    assert (report["device"], report["load_average"]) == ("cpu", 0.5)
    assert report["hardware_id"] == hardware_id(report["hardware"])
    assert report["free_memory_mb"] > 0 and report["num_threads"] > 0 and report["num_cores"] > 0
    assert report["packages"] == package_versions()
    json.dumps(report)


def test_preflight_without_the_gpu_asked_for_is_blocked(no_gpu):
    report = preflight(make_experiment(), "cuda")
    assert (report["status"], report["ready"], report["device"]) == ("blocked", False, None)
    assert len(report["reasons"]) == 1 and report["reasons"][0].startswith("device: must be there, got 'cuda'")
    assert report["next_actions"] == [
        "Rehearse with --device cpu, or install a CUDA build of torch on a machine with a GPU."]


def test_preflight_reports_every_problem(gpu, monkeypatch):
    gpu["capability"] = "7.5"
    monkeypatch.setattr(environment, "package_versions", lambda: {
        "python": "3.10.1", "torch": "2.5.1+cu121", "transformers": None, "numpy": "1", "tokenizers": "1"})
    assert preflight(make_experiment(dtype_mode="bf16"), "cuda")["reasons"] == [
        "python: must be at least 3.11 and below 3.14, got 3.10.1.",
        "torch: must be at least 2.6, got 2.5.1+cu121.",
        "transformers: must be at least 4.56 and below 6.0, got None.",
        "dtype_mode: must be fp32 on NVIDIA A10, got 'bf16', which needs compute capability 8.0 and this GPU has 7.5."]


def test_preflight_of_a_gpu_that_does_not_answer_is_blocked(gpu, monkeypatch):
    def fail(target):
        raise ProcessError(target, "RuntimeError: driver too old")

    monkeypatch.setattr(processes, "call", fail)
    report = preflight(make_experiment(), "auto")
    assert report["reasons"] == ["device: must answer, got: RuntimeError: driver too old."]
    assert report["next_actions"] == ["Check the GPU's driver, or rehearse with --device cpu."]


def test_preflight_warns_of_other_work_and_of_scarce_memory(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (9.25, 0.0, 0.0))
    monkeypatch.setattr(environment, "num_cores", lambda: 2)
    monkeypatch.setattr(environment, "available_ram_bytes", lambda: 2**20)
    report = preflight(make_experiment(memory_cap_mb=28.0), "cpu")
    assert report["ready"]
    assert report["warnings"] == [
        "load average 9.2 exceeds 2 cores: step times will not be trustworthy. Stop other work and measure again.",
        "free memory 1.0 MiB is below memory_cap_mb 28.0 MiB: runs may end out of memory before they reach the cap. "
        "Free some memory."]


def test_the_gpu_is_read_as_it_is_in_the_child(monkeypatch):
    properties = SimpleNamespace(name="NVIDIA H200", total_memory=2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7, 9))
    assert environment._read_cuda_facts() == {
        "device": "NVIDIA H200", "total_memory_mb": 1024.0, "capability": "9.0", "torch": torch.__version__}
    assert environment._read_free_cuda_bytes() == 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_reading_a_gpu_makes_no_context_here():
    preflight(make_experiment(), "cuda")
    assert not torch.cuda.is_initialized()
