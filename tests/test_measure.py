"""One run: what it records, in which order, and what it refuses to call a result."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
import torch

from memstrat import measure, strategies
from memstrat.errors import ModelError
from memstrat.measure import RunSpec, is_out_of_memory, measure_run
from memstrat.models import build_model, make_inputs
from memstrat.records import Run
from memstrat.strategies import Baseline, Checkpoint
from memstrat.training_step import TrainingStep, make_optimizer
from memstrat.units import MIB
from memstrat.workload import OptimizerSpec, Workload

PARAMETER_BYTES = 4 * 1_247_360


def make_workload(**overrides: Any) -> Workload:
    values = {"model_id": "memstrat/tiny-qwen2", "seq_len": 32, "warmup": 2, "iters": 3,
              "optimizer": OptimizerSpec(foreach=True)}
    return Workload(**values | overrides)


def make_run(strategy: str = "baseline", **overrides: Any) -> Run:
    return measure_run(RunSpec(workload=make_workload(**overrides), strategy=strategy, device="cpu", num_threads=1))


@pytest.fixture(scope="module")
def runs():
    return {name: make_run(name, seq_len=128) for name in ("baseline", "checkpoint", "offload", "hybrid")}


def replace_strategy(monkeypatch, strategy):
    monkeypatch.setitem(strategies._registry, "baseline", strategy)


# -- what a run records ---------------------------------------------------------------------


def test_run_has_every_figure(runs):
    run = runs["baseline"]
    assert (run.name, run.repeat, run.seq_len, run.optimizer, run.status) == ("baseline", 0, 128, "AdamW", "ok")
    assert (run.reason, run.memory_source, run.peak_reserved_mb, run.num_threads) == (
        None, "tensor_accounting", None, 1)
    assert len(run.step_times_ms) == 3 and run.step_time_ms == statistics.median(run.step_times_ms)
    assert run.samples_per_s == 1000 / run.step_time_ms
    assert 7.5 < run.loss < run.step1_loss < 7.8 and 7.5 < run.eval_loss < 7.8
    assert run.eval_loss != run.loss and run.load_average >= 0 and run.wall_s > sum(run.step_times_ms) / 1000


def test_strategies_train_the_same_and_prove_their_paths(runs):
    for key in ("step1_loss", "step1_grad_norm", "loss", "eval_loss"):
        assert len({getattr(run, key) for run in runs.values()}) == 1, key
    assert all(run.execution_path_verified and run.path_problems == [] for run in runs.values())


def test_peak_is_the_highest_phase(runs):
    for run in runs.values():
        assert list(run.phases) == ["forward", "backward", "optimizer"]
        assert run.peak_memory_mb == max(phase.peak_allocated_bytes for phase in run.phases.values()) / MIB
    # Parameters, gradients, two moments and one more copy for foreach, whatever the strategy.
    for run in runs.values():
        assert run.phases["optimizer"].peak_allocated_bytes == pytest.approx(5 * PARAMETER_BYTES, rel=0.001)


def test_strategies_keep_less_alive_after_forward(runs):
    alive = {name: run.resident_after_forward_bytes for name, run in runs.items()}
    assert alive["offload"] < alive["hybrid"] < alive["checkpoint"] < alive["baseline"]
    assert alive["offload"] >= 3 * PARAMETER_BYTES  # parameters and moments; gradients are not there yet


def test_offloaded_bytes_move_to_the_host_tier(runs):
    # AdamW's step counters, 4 bytes a parameter tensor: CUDA keeps them on the host, so they count there.
    counters = runs["baseline"].phases["forward"].host_peak_bytes
    assert counters == 4 * 50
    for run in runs.values():
        assert run.host_peak_mb == run.path.packed_bytes / MIB
        assert run.phases["forward"].host_peak_bytes == run.path.packed_bytes + counters
    assert runs["offload"].host_peak_mb > runs["hybrid"].host_peak_mb > runs["checkpoint"].host_peak_mb == 0


def test_attention_operators_are_recorded(runs):
    assert runs["baseline"].attention_kernels == [
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"]
    assert make_run(attention="math", iters=1).attention_kernels == ["_safe_softmax"]


def test_progress_is_reported_after_each_step():
    seen = []
    spec = RunSpec(workload=make_workload(warmup=1, iters=2), strategy="baseline", device="cpu")
    measure_run(spec, lambda kind, done, total: seen.append((kind, done, total)))
    assert seen == [("build", 1, 7), ("warmup", 2, 7), ("timed", 3, 7), ("timed", 4, 7), ("eval", 5, 7),
                    ("probe", 6, 7), ("probe", 7, 7)]


@pytest.mark.parametrize("changes", [
    {"dtype_mode": "bf16"}, {"loss_head": "chunked"}, {"optimizer": OptimizerSpec(name="SGD", lr=1e-4)},
    {"micro_batch": 2}], ids=["bf16", "chunked", "sgd", "batch"])
def test_other_workloads_run(changes):
    run = make_run("hybrid", warmup=1, iters=1, **changes)
    assert run.status == "ok" and run.execution_path_verified
    assert run.samples_per_s == changes.get("micro_batch", 1) * 1000 / run.step_time_ms


# -- what must not pass ---------------------------------------------------------------------


def test_wrong_path_is_recorded_not_verified(monkeypatch):
    class LeftOn(Checkpoint):
        check_path = Baseline.check_path
    replace_strategy(monkeypatch, LeftOn())
    run = make_run(iters=1)
    assert run.status == "ok" and run.execution_path_verified is False
    assert run.path_problems == ["recomputed regions must be 0, got 4"]


def test_strategy_that_leaves_eval_mode_is_trained_in_train_mode(monkeypatch):
    class Careless(Checkpoint):
        def prepare(self, model):
            super().prepare(model)
            model.eval()
    replace_strategy(monkeypatch, Careless())
    assert make_run(iters=1).execution_path_verified


@pytest.mark.parametrize(("step_that_breaks", "reason"), [
    (1, "warm-up step 1: loss must be finite, got nan"), (2, "warm-up step 2: loss must be finite, got nan"),
    (4, "timed step 2: loss must be finite, got nan")])
def test_loss_that_is_not_finite_fails_the_run(monkeypatch, step_that_breaks, reason):
    class Breaks(Baseline):
        num_steps = 0

        def step_context(self, model):
            self.num_steps += 1
            if self.num_steps == step_that_breaks:
                torch.nn.init.constant_(model.model.norm.weight, float("nan"))
            return super().step_context(model)
    replace_strategy(monkeypatch, Breaks())
    run = make_run()
    assert (run.status, run.reason) == ("failed", reason)
    assert (run.loss, run.step_time_ms, run.peak_memory_mb, run.execution_path_verified) == (None, None, None, None)


def test_gradient_that_is_not_finite_fails_the_run(monkeypatch):
    class Breaks(Baseline):
        def prepare(self, model):
            model.model.norm.weight.register_hook(lambda grad: grad * float("inf"))
    replace_strategy(monkeypatch, Breaks())
    run = make_run()
    assert run.status == "failed" and run.reason.startswith("warm-up step 1: gradient norm must be finite, got ")


def test_kernel_that_cannot_run_is_refused_before_a_step():
    with pytest.raises(ModelError, match="attention: must be a kernel that runs on cpu"):
        make_run(attention="efficient")


def test_kernel_that_refuses_in_the_model_is_explained(monkeypatch):
    monkeypatch.setattr(measure, "check_attention", lambda *args: None)
    with pytest.raises(ModelError, match="attention: must be a kernel that runs in this model, got 'efficient': No "):
        make_run(attention="efficient")


def test_error_of_another_kind_is_raised_as_it_is(monkeypatch):
    class Breaks(Baseline):
        def step_context(self, model):
            raise RuntimeError("something else")
    replace_strategy(monkeypatch, Breaks())
    with pytest.raises(RuntimeError, match="^something else$"):
        make_run(attention="math")


def test_timed_steps_have_nothing_attached(monkeypatch):
    seen = []

    class Looks(Baseline):
        def step_context(self, model):
            from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

            from memstrat import saved_tensors
            attached = sum(len(module._forward_pre_hooks) for module in model.modules())
            seen.append((attached, len(_get_current_dispatch_mode_stack()), saved_tensors._watcher is None))
            return super().step_context(model)
    replace_strategy(monkeypatch, Looks())
    make_run(warmup=1, iters=2)
    assert seen[:3] == [(0, 0, True)] * 3
    assert seen[3][0] > 0 and seen[4][1] == 1  # the watched step, then the counted one


def test_model_is_back_in_train_mode_after_eval(monkeypatch):
    workload = make_workload()
    model = build_model(workload, "cpu")
    train_ids, eval_ids = make_inputs(workload, model.config, "cpu")
    step = TrainingStep(workload, Baseline(), model, train_ids)
    monkeypatch.setattr(step, "loss_of", lambda ids: torch.tensor(float("nan")))
    with pytest.raises(FloatingPointError):
        measure._eval_loss(step, eval_ids)
    assert model.training


# -- optimizer and memory errors ------------------------------------------------------------


@pytest.mark.parametrize(("spec", "kind", "flags"), [
    (OptimizerSpec(), torch.optim.AdamW, {"lr": 1e-5, "foreach": None, "fused": None, "betas": (0.9, 0.999)}),
    (OptimizerSpec(foreach=True), torch.optim.AdamW, {"foreach": True}),
    (OptimizerSpec(fused=True), torch.optim.AdamW, {"fused": True}),
    (OptimizerSpec(name="SGD", lr=1e-4), torch.optim.SGD, {"lr": 1e-4, "momentum": 0.0, "foreach": None}),
    (OptimizerSpec(name="SGD", momentum=0.9, foreach=False), torch.optim.SGD, {"momentum": 0.9, "foreach": False}),
])
def test_optimizer_has_exactly_the_flags_given(spec, kind, flags):
    optimizer = make_optimizer(iter([torch.nn.Parameter(torch.ones(1))]), spec)
    assert type(optimizer) is kind
    assert {key: optimizer.defaults[key] for key in flags} == flags


@pytest.mark.parametrize(("error", "expected"), [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
    (MemoryError(), True),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you "
                  "tried to allocate 4398046511104 bytes. Error code 12 (Cannot allocate memory)"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (RuntimeError("CUDA error: out of memory"), True),
    (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    (ValueError("CUDA out of memory"), False),
])
def test_out_of_memory_is_told_from_other_errors(error, expected):
    assert is_out_of_memory(error) is expected


def test_real_cpu_allocation_failure_is_out_of_memory():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
