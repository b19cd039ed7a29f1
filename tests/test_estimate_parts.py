"""What an estimate is made of: kernels, autocast, shapes, devices, limits, architectures."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from transformers import AutoConfig

from memstrat.errors import InputError, ModelError, UnknownNameError
from memstrat.estimate import Device, TraceSettings, estimate, estimate_peak_bytes, find_device
from memstrat.estimate.attention import choose_kernel
from memstrat.estimate.autocast import CudaAutocast, following_torch
from memstrat.estimate.search import find_largest_batch, find_longest, predict_ladder
from memstrat.estimate.shapes import ShapeCache
from memstrat.estimate.trace import trace_strategy
from memstrat.experiment import load_experiment
from memstrat.workload import Workload

MIB = 2**20
SMALL = dict(hidden_size=64, num_hidden_layers=2, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, vocab_size=512, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ARCHITECTURES = {
    "qwen2": {}, "qwen3": {}, "llama": {}, "mistral": {"sliding_window": 64}, "gemma2": {}, "gemma3_text": {},
    "phi3": {}, "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}, "olmo2": {},
    "mixtral": {"num_local_experts": 4}}


def make_workload(tmp_path, architecture="llama", config=None, **overrides):
    settings = SMALL | ARCHITECTURES.get(architecture, {}) | (config or {})
    AutoConfig.for_model(architecture, **settings).save_pretrained(tmp_path)
    values = {"model_id": architecture, "model_path": str(tmp_path), "seq_len": 128, "strategies": ("baseline",)}
    return Workload(**(values | overrides))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_estimate_traces_the_architecture(tmp_path, architecture):
    workload = make_workload(tmp_path, architecture, strategies=("baseline", "hybrid"))
    if architecture == "mixtral" and transformers.__version__.startswith("4."):
        with pytest.raises(ModelError, match="must run without looking at its data"):  # it loops over the experts hit
            estimate(workload)
        return
    found = estimate(workload, settings=TraceSettings(with_eval=False))
    assert found["hybrid"].cost.recomputed_flops > 0
    phases = {name: item.prediction.phase_peak_bytes for name, item in
              ((item.name, item) for item in found.strategies)}
    assert phases["hybrid"]["forward"] < phases["baseline"]["forward"]


def test_estimate_refuses_a_model_that_looks_at_its_data_in_one_sentence(tmp_path, monkeypatch):
    from transformers.models.llama import modeling_llama

    forward = modeling_llama.LlamaMLP.forward

    def looking(self, hidden):
        return forward(self, hidden) if hidden.sum() > 0 else hidden
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", looking)
    with pytest.raises(ModelError, match="model: must run without looking at its data") as error:
        trace_strategy(make_workload(tmp_path), "baseline")
    assert len(str(error.value).splitlines()) == 1


def test_estimate_of_a_model_without_sdpa_counts_its_eager_attention(tmp_path):
    trace = trace_strategy(make_workload(tmp_path, "gemma2"), "baseline")
    supports_sdpa = transformers.Gemma2ForCausalLM._supports_sdpa  # it did in versions 4
    assert trace.kernels == (("math",) if supports_sdpa else ())


def test_estimate_sees_the_optimizer_flags(tmp_path):
    def peak(**flags):
        optimizer = {"name": "AdamW"} | flags
        return estimate_peak_bytes(make_workload(tmp_path, seq_len=16, optimizer=optimizer))
    assert peak(fused=True) < peak(foreach=False) < peak(foreach=True)
    assert peak() == peak(foreach=True)


def test_estimate_sees_the_loss_head(tmp_path):
    wide = {"vocab_size": 16384, "max_position_embeddings": 2048}
    peaks = [estimate_peak_bytes(make_workload(tmp_path, config=wide, seq_len=2048, loss_head=head,
                                               optimizer={"name": "SGD"})) for head in ("hf", "chunked")]
    assert peaks[0] - peaks[1] > 2048 * 16384 * 4         # one copy of all logits at the least


def test_estimate_sees_reentrant_checkpointing(tmp_path):
    workload = make_workload(tmp_path, strategies=("baseline", "checkpoint"))
    traces = [trace_strategy(workload, "checkpoint", TraceSettings(use_reentrant=flag)) for flag in (False, True)]
    assert len(traces[0].events) != len(traces[1].events)
    assert all(trace.flops["recompute"] > 0 for trace in traces)


@pytest.mark.parametrize(("dtype", "is_grouped", "has_mask", "capability", "kernel"), [
    (torch.float32, True, False, (12, 0), "math"),        # no fused kernel takes fp32 with grouped queries
    (torch.float32, False, False, (12, 0), "efficient"),
    (torch.float32, False, True, (8, 0), "efficient"),
    (torch.bfloat16, True, False, (8, 0), "flash"),
    (torch.bfloat16, False, True, (9, 0), "efficient"),
    (torch.bfloat16, True, True, (9, 0), "math"),
    (torch.float16, False, False, (7, 5), "efficient"),
    (torch.bfloat16, False, False, (7, 5), "math"),
])
def test_attention_kernel_follows_dtype_grouping_mask_and_capability(dtype, is_grouped, has_mask, capability, kernel):
    assert choose_kernel(dtype, is_grouped, has_mask, 64, capability) == kernel


def test_attention_flash_in_fp32_is_refused(tmp_path):
    with pytest.raises(ModelError, match="attention: must be a kernel that takes torch.float32"):
        trace_strategy(make_workload(tmp_path, attention="flash"), "baseline")


def test_attention_kernels_differ_by_the_score_matrices(tmp_path):
    ungrouped = {"num_key_value_heads": 4}
    peaks = [estimate_peak_bytes(make_workload(tmp_path, config=ungrouped, seq_len=512, attention=kernel,
                                               optimizer={"name": "SGD"})) for kernel in ("math", "efficient")]
    one_matrix = 4 * 512 * 512 * 4
    assert peaks[0] - peaks[1] >= 2 * one_matrix          # one a layer


def test_autocast_casts_as_cuda_does_and_keeps_weight_copies():
    weight = torch.nn.Parameter(torch.empty(8, 8, device="meta"))
    inputs = torch.empty(2, 8, device="meta")
    mode = CudaAutocast()
    with mode, torch.autocast("cpu", torch.bfloat16):
        product = torch.nn.functional.linear(inputs, weight)
        assert product.dtype == torch.bfloat16
        assert torch.nn.functional.softmax(product, -1).dtype == torch.float32
        assert (product * inputs).dtype == torch.float32
        assert torch.cat([product, inputs]).dtype == torch.float32
        copies = list(mode._weight_copies.values())
        torch.nn.functional.linear(inputs, weight)
        assert len(mode._weight_copies) == 1
        assert list(mode._weight_copies.values())[0] is copies[0]


def test_autocast_forgets_weight_copies_when_torch_does():
    weight, mode = torch.nn.Parameter(torch.empty(8, 8, device="meta")), CudaAutocast()
    with following_torch(mode), mode:
        with torch.autocast("cpu", torch.bfloat16):
            torch.nn.functional.linear(weight, weight)
        assert not mode._weight_copies
        assert torch.nn.functional.linear(weight, weight).dtype == torch.float32


def test_shape_cache_answers_like_the_operation():
    cache, aten = ShapeCache(), torch.ops.aten
    left, right = torch.empty(3, 4, device="meta").t(), torch.empty(4, 3, device="meta", dtype=torch.bfloat16)
    for _ in range(2):
        found = cache.run(aten.add.Tensor, (left, right), {})
        expected = left + right
        assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
        view = cache.run(aten.t.default, (left,), {})
        assert view.untyped_storage()._cdata == left.untyped_storage()._cdata
    values, indices = cache.run(aten.topk.default, (right, 2), {})
    assert (values.dtype, indices.dtype) == (torch.bfloat16, torch.int64)


def test_device_is_found_by_name_or_by_size():
    assert find_device("rtx3060").total_bytes == 12288 * MIB
    assert find_device("12GiB").total_bytes == 12 * 2**30
    assert find_device("12GiB").free_bytes == 12 * 2**30 - (450 + 600) * MIB
    assert find_device("A100-40GB").free_bytes == (40960 - 450) * MIB
    assert find_device("RTX 5070 Ti Laptop").free_bytes == (12227 - 450 - 600) * MIB
    assert find_device("H100-80GB").cublas_workspace_bytes == 32 * MIB
    with pytest.raises(UnknownNameError, match="device_memory: must be a size such as 12GiB or one of T4"):
        find_device("abacus")


def make_device(free_mib):
    """A device whose allocator may take this much (MiB)."""
    return Device("small", free_mib * MIB, other_bytes=0)


def make_limit_task(tmp_path, **overrides):
    return make_workload(tmp_path, config={"max_position_embeddings": 8192, "vocab_size": 4096},
                         optimizer={"name": "SGD"}, **overrides)


def test_longest_sequence_fits_and_the_next_does_not(tmp_path):
    workload, device = make_limit_task(tmp_path), make_device(150)
    limit = find_longest(workload, "baseline", device)
    assert 0 < limit.value < 8192
    assert limit.value % 64 == 0
    assert limit.peak_allocated_bytes <= device.free_bytes
    rows = predict_ladder(workload, [limit.value, limit.value + 64], device)
    assert [row["fits"] for row in rows] == [True, False]


def test_longest_sequence_stops_at_the_models_own_limit(tmp_path):
    limit = find_longest(make_workload(tmp_path), "baseline", find_device("16GiB"))
    assert (limit.value, limit.is_model_limit) == (512, True)


def test_largest_batch_is_zero_where_nothing_fits(tmp_path):
    limit = find_largest_batch(make_limit_task(tmp_path), "baseline", make_device(1))
    assert (limit.value, limit.peak_allocated_bytes) == (0, None)


def test_limit_without_a_capacity_is_refused(tmp_path):
    from memstrat.estimate.devices import ANY_DEVICE

    with pytest.raises(InputError, match="device_memory: must be given"):
        find_longest(make_workload(tmp_path), "baseline", ANY_DEVICE)


def test_ladder_puts_the_linear_projection_beside_the_estimate():
    workload = load_experiment("tiny", strategies=["baseline", "checkpoint"]).workload
    rows = predict_ladder(workload, [256, 512], make_device(1024))
    assert [(row["seq_len"], row["name"]) for row in rows] == [
        (256, "baseline"), (256, "checkpoint"), (512, "baseline"), (512, "checkpoint")]
    assert rows[0]["projected_peak_bytes"] is None
    assert rows[2]["projected_peak_bytes"] == 2 * rows[0]["peak_allocated_bytes"]
    assert rows[3]["saving_bytes"] > 0


def test_estimate_plots_draw_every_strategy():
    from memstrat.plots.estimate import plot_categories, plot_timeline

    found = estimate(load_experiment("tiny", strategies=["baseline", "checkpoint"]).workload)
    record = json.loads(json.dumps(found.record() | {"timelines": found.timelines()}))
    bars = plot_categories(record)
    assert len(bars.rows) == 2 * 3
    assert "checkpoint: peak" in bars.text
    assert {row[0] for row in plot_timeline(record).rows} == {"baseline", "checkpoint"}
