"""The prediction against tensors really counted on a CPU, phase by phase. They agree to the byte."""

from __future__ import annotations

import pytest
import transformers

from memstrat import strategies
from memstrat.errors import InputError
from memstrat.estimate import TraceSettings, estimate
from memstrat.estimate.compare import compare_readout
from memstrat.experiment import load_experiment
from memstrat.models import build_model, make_inputs
from memstrat.probe import observe_memory
from memstrat.readout import Readout
from memstrat.training_step import TrainingStep

# Older transformers build one small mask more on a device with data.
TOLERANCE = 0.01 if transformers.__version__.startswith("4.") else 0.0


def make_tiny(**overrides):
    return load_experiment("tiny", **overrides).workload


def count_live_bytes(workload, name):
    """Phases and bytes alive after forward of a third step, by tensor accounting."""
    strategy, model = strategies.get(name), build_model(workload, "cpu")
    ids, _ = make_inputs(workload, model.config, "cpu")
    strategy.prepare(model)
    step = TrainingStep(workload, strategy, model.train(), ids)
    step()
    return observe_memory(step)


@pytest.mark.parametrize("overrides", [
    {}, {"dtype_mode": "bf16"}, {"attention": "math", "optimizer": "sgd", "loss_head": "chunked"},
    {"foreach": False, "seq_len": 384}], ids=lambda overrides: "-".join(map(str, overrides.values())) or "preset")
def test_estimate_equals_tensor_accounting(overrides):
    assert_estimate_equals_count(make_tiny(**overrides))


def test_estimate_equals_tensor_accounting_of_a_model_with_dropout(tmp_path):
    transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0,
                            eos_token_id=0).save_pretrained(tmp_path)
    assert_estimate_equals_count(make_tiny(model=str(tmp_path), seq_len=64, ladder=[]))


def assert_estimate_equals_count(workload):
    found = estimate(workload, settings=TraceSettings(is_cpu=True, with_eval=False))
    for name in workload.strategies:
        phases, resident_bytes = count_live_bytes(workload, name)
        profile = found[name].prediction.profile
        predicted = {phase: peak.peak_device_bytes for phase, peak in profile.phases.items()}
        for phase, memory in phases.items():
            assert predicted[phase] == pytest.approx(memory.peak_allocated_bytes, rel=TOLERANCE)
        assert profile.resident_after_forward_bytes == pytest.approx(resident_bytes, rel=TOLERANCE)
        assert profile.phases["backward"].peak_host_bytes == pytest.approx(
            phases["backward"].host_peak_bytes, rel=TOLERANCE)


def test_cpu_estimate_rounds_nothing_and_reserves_nothing():
    found = estimate(make_tiny(strategies=["baseline"]), settings=TraceSettings(is_cpu=True))
    assert found["baseline"].prediction.peak_reserved_bytes is None
    assert found["baseline"].peak_allocated_bytes % 512 != 0


def make_record(workload, peaks_mb, **changes):
    """A CPU rehearsal's G0 record, as far as a comparison reads it."""
    return {"run_mode": "cpu_rehearsal", "run_label": "mine",
            "config": workload.identity() | {"seq_len": workload.seq_len},
            "candidates": [{"name": name, "status": "ok", "peak_memory_mb": peak, "runs": []}
                           for name, peak in peaks_mb.items()], **changes}


def test_compare_calls_a_peak_five_percent_off_implausible_and_says_why(tmp_path):
    workload = make_tiny(strategies=["baseline", "checkpoint"])
    found = estimate(workload, settings=TraceSettings(is_cpu=True))
    baseline_mb = found["baseline"].peak_allocated_bytes / 2**20
    readout = Readout("mine", tmp_path, g0=make_record(workload, {"baseline": baseline_mb, "checkpoint": baseline_mb}))
    result = compare_readout(readout)
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["baseline"]["verdict"] == "plausible"
    assert rows["baseline"]["difference_pct"] == 0.0
    assert rows["checkpoint"]["verdict"] == "implausible"
    assert any("the strategy's path did not run" in line for line in rows["checkpoint"]["explanations"])
    assert result["memory_source"] == "tensor_accounting"


def test_compare_asks_for_the_folder_of_a_local_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    workload = make_tiny(model=str(tmp_path))
    with pytest.raises(InputError, match="give --model FOLDER"):
        compare_readout(Readout("mine", tmp_path, g0=make_record(workload, {"baseline": 9.0})))


def test_compare_admits_that_nothing_explains_a_peak(tmp_path):
    workload = make_tiny(strategies=["baseline"])
    result = compare_readout(Readout("mine", tmp_path, g0=make_record(workload, {"baseline": 1000.0})))
    assert "no other reading of the task meets it" in result["rows"][0]["explanations"][-1]


def test_compare_reads_the_ladder_of_a_g1_record(tmp_path):
    workload = make_tiny(strategies=["baseline"])
    task = make_record(workload, {})
    task["length_records"] = [{"seq_len": length, "candidates": [
        {"name": "baseline", "status": "ok", "peak_memory_mb": 40.0}]} for length in (256, 384)]
    rows = compare_readout(Readout("mine", tmp_path, g1=task))["rows"]
    assert [(row["kind"], row["seq_len"]) for row in rows] == [("g1", 256), ("g1", 384)]
    assert rows[0]["predicted_mib"] < rows[1]["predicted_mib"]
