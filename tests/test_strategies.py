"""The four strategies on a real decoder: same gradients bit for bit, exact path counts, and the traps."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig

from memstrat import strategies, workload
from memstrat.errors import InputError, ModelError, UnknownNameError
from memstrat.models import build_model, load_config, make_inputs
from memstrat.probe import observe_path
from memstrat.records import PathEvidence
from memstrat.saved_tensors import HostOffload, counted_hooks
from memstrat.strategies import Baseline, Checkpoint, Hybrid, Strategy
from memstrat.training_step import TrainingStep
from memstrat.workload import Workload

TINY = Workload(model_id="memstrat/tiny-qwen2", seq_len=24)


def make_step(strategy: Strategy, task: Workload = TINY) -> TrainingStep:
    model = build_model(task, "cpu")
    strategy.prepare(model)
    return TrainingStep(task, strategy, model, make_inputs(task, load_config(task), "cpu")[0])


def loss_and_gradients(strategy: Strategy, task: Workload = TINY) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    step = make_step(strategy, task)
    torch.manual_seed(0)
    loss = step.forward()
    step.backward(loss)
    return loss.detach(), {name: parameter.grad for name, parameter in step.model.named_parameters()}


def path_of(strategy: Strategy) -> PathEvidence:
    return observe_path(make_step(strategy))[0]


@pytest.fixture(scope="module")
def paths_of_all():
    return {name: path_of(strategies.get(name)) for name in workload.CORE_STRATEGIES}


@pytest.fixture
def registry(monkeypatch):
    """The core four alone, whatever other tests registered; a test's own registrations end with it."""
    core = {name: strategies.get(name) for name in workload.CORE_STRATEGIES}
    monkeypatch.setattr(strategies, "_registry", core)
    monkeypatch.setattr(workload, "_strategy_names", dict.fromkeys(core))


# -- same training --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["checkpoint", "offload", "hybrid"])
@pytest.mark.parametrize("changes", [{}, {"attention": "math"}, {"dtype_mode": "bf16"}, {"loss_head": "chunked"}],
                         ids=["plain", "math", "bf16", "chunked"])
def test_loss_and_gradients_equal_the_baseline_bit_for_bit(name, changes):
    task = TINY.replace(**changes)
    expected_loss, expected = loss_and_gradients(strategies.get("baseline"), task)
    loss, gradients = loss_and_gradients(strategies.get(name), task)
    assert torch.equal(loss, expected_loss)
    assert all(torch.equal(gradients[key], expected[key]) for key in expected)


def test_recomputation_draws_the_same_dropout():
    class Dropout(Strategy):
        def __init__(self, inner: Strategy):
            self.inner = inner

        def prepare(self, model):
            for layer in model.model.layers:
                layer.self_attn.attention_dropout = 0.5
            self.inner.prepare(model)

        def step_context(self, model):
            return self.inner.step_context(model)

    expected_loss, expected = loss_and_gradients(Dropout(Baseline()))
    loss, gradients = loss_and_gradients(Dropout(Hybrid()))
    assert torch.equal(loss, expected_loss) and loss != loss_and_gradients(Baseline())[0]
    assert all(torch.equal(gradients[key], expected[key]) for key in expected)


# -- the path each must show ----------------------------------------------------------------


@pytest.mark.parametrize(("name", "num_recomputed", "num_inside", "num_outside", "num_region_inputs"), [
    # Outside regions: 13 tensors, of embedding, final norm, head and loss; offload packs as many inside each of the
    # four regions, one more or less by version. A checkpoint adds a region's input.
    ("baseline", 0, [0], [0], 0), ("checkpoint", 4, [0], [0], 0),
    ("offload", 0, [4 * 38, 4 * 39], [13], 4), ("hybrid", 4, [0], [13 + 4], 4),
])
def test_path_counts_of_tiny(name, num_recomputed, num_inside, num_outside, num_region_inputs, paths_of_all):
    path = paths_of_all[name]
    assert (path.num_regions, path.num_recomputed_regions) == (4, num_recomputed)
    assert path.num_packed_inside_regions in num_inside
    assert path.num_packed - path.num_packed_inside_regions in num_outside
    assert path.num_unpacked == path.num_packed
    assert path.num_region_inputs_packed == num_region_inputs
    assert strategies.get(name).check_path(path) == []


def test_packed_bytes_of_tiny_by_kind(paths_of_all):
    offload, hybrid = paths_of_all["offload"], paths_of_all["hybrid"]
    # A region's input: 24 tokens x 128 x 4 bytes, in 4 regions; logits: 24 x 2048 x 4, once in cross-entropy.
    assert offload.packed_bytes_by_kind["region_input"] == hybrid.packed_bytes_by_kind["region_input"] == 4 * 12_288
    assert offload.packed_bytes_by_kind["logits"] == hybrid.packed_bytes_by_kind["logits"] == 196_608
    # Outside regions: the tied head 2048 x 128 x 4 and the final norm's 128 x 4.
    assert hybrid.packed_bytes_by_kind["parameter"] == 1_049_088
    # Every weight is saved once (the first layer's too, its input needs a gradient), biases never.
    weights = sum(4 * parameter.numel() for name, parameter in build_model(TINY, "cpu").named_parameters()
                  if not name.endswith("bias"))
    assert offload.packed_bytes_by_kind["parameter"] == weights
    for path in (offload, hybrid):
        assert path.packed_bytes == path.unpacked_bytes == sum(path.packed_bytes_by_kind.values())


@pytest.mark.parametrize("claimed", ["baseline", "checkpoint", "offload", "hybrid"])
@pytest.mark.parametrize("ran", ["baseline", "checkpoint", "offload", "hybrid"])
def test_path_of_one_strategy_proves_no_other(ran, claimed, paths_of_all):
    assert (strategies.get(claimed).check_path(paths_of_all[ran]) == []) == (ran == claimed)


# -- traps ----------------------------------------------------------------------------------


def test_offload_inside_a_region_makes_the_checkpoint_inert_and_is_caught(paths_of_all):
    class Inside(Hybrid):
        def prepare(self, model):
            super().prepare(model)

            def checkpoint_around_offload(function, *args):
                def run(*inner):
                    with self.engine.hooks():
                        return function(*inner)
                return checkpoint(run, *args, use_reentrant=False)
            for layer in model.model.layers:
                layer._gradient_checkpointing_func = checkpoint_around_offload

    path, num_inside = path_of(Inside()), paths_of_all["offload"].num_packed_inside_regions
    # The checkpoint packs its inputs and never asks for them: it has nothing to recompute for.
    assert path.num_unpacked == num_inside + 13 == path.num_packed - (paths_of_all["hybrid"].num_packed - 13)
    assert Hybrid().check_path(path) == [
        "recomputed regions must be all 4 and more than 0, got 0",
        f"unpacked tensors must be as many as packed, {path.num_packed}, got {path.num_unpacked}",
        f"tensors packed inside regions must be 0, got {num_inside}"]


def test_baseline_with_checkpointing_left_on_is_caught():
    class LeftOn(Baseline):
        def prepare(self, model):
            strategies.enable_checkpointing(model)
    assert Baseline().check_path(path_of(LeftOn())) == ["recomputed regions must be 0, got 4"]


@pytest.mark.parametrize("make_hooks", [lambda: HostOffload().hooks(), save_on_cpu], ids=["ours", "torch's"])
def test_baseline_with_offload_hooks_left_on_is_caught(make_hooks, paths_of_all):
    step = make_step(Baseline())
    with make_hooks():
        path = observe_path(step)[0]
    num_packed = 1 if make_hooks is save_on_cpu else paths_of_all["offload"].num_packed
    assert Baseline().check_path(path) == [f"packed tensors must be 0, got {num_packed}"]


@pytest.mark.parametrize("strategy", [Checkpoint(), Hybrid()], ids=["checkpoint", "hybrid"])
def test_eval_mode_switches_checkpointing_off_silently_and_is_caught(strategy):
    step = make_step(strategy)
    step.model.eval()
    path = observe_path(step)[0]
    assert path.num_recomputed_regions == 0
    assert "recomputed regions must be all 4 and more than 0, got 0" in strategy.check_path(path)


def test_checkpointing_of_some_layers_only_is_caught():
    class Some(Checkpoint):
        def prepare(self, model):
            super().prepare(model)
            model.model.layers[2].gradient_checkpointing = False
    assert Checkpoint().check_path(path_of(Some())) == ["recomputed regions must be all 4 and more than 0, got 3"]


def test_hybrid_that_recomputes_but_offloads_nothing_is_caught():
    class NoHooks(Hybrid):
        def step_context(self, model):
            return nullcontext()
    assert Hybrid().check_path(path_of(NoHooks())) == ["packed region inputs must be at least 4, got 0"]


# -- transformers' switch -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["activation_checkpointing_enable", "gradient_checkpointing_enable"])
def test_switch_of_either_name_is_told_to_be_non_reentrant(name):
    model, calls = nn.Linear(1, 1), []
    setattr(model, name, calls.append)
    strategies.enable_checkpointing(model)
    assert calls == [{"use_reentrant": False}]


def test_switch_is_non_reentrant_on_a_real_model():
    model = build_model(TINY, "cpu")
    strategies.enable_checkpointing(model)
    functions = [layer._gradient_checkpointing_func for layer in model.model.layers]
    assert all(isinstance(function, partial) and function.keywords == {"use_reentrant": False}
               for function in functions)


def test_model_without_switch_is_refused():
    with pytest.raises(ModelError, match="model: must support activation checkpointing, got Linear"):
        strategies.enable_checkpointing(nn.Linear(1, 1))


# -- registering ----------------------------------------------------------------------------


def make_own(**overrides: Any) -> Strategy:
    class OffloadLarge(Strategy):
        name = "offload_large"
        description = "saved tensors of 16 KiB or more move to the host"

        def step_context(self, model):
            engine = HostOffload()
            return counted_hooks(lambda saved: engine.pack(saved) if saved.nbytes >= 2**14 else saved,
                                 lambda kept: kept if isinstance(kept, torch.Tensor) else engine.unpack(kept))

        def check_path(self, path):
            return [] if path.num_unpacked == path.num_packed > 0 else ["packed tensors must come back"]
    strategy = OffloadLarge()
    for key, value in overrides.items():
        setattr(strategy, key, value)
    return strategy


def test_registered_strategy_is_known_to_workloads_and_runs(registry):
    own = strategies.register(make_own())
    assert strategies.names() == ("baseline", "checkpoint", "offload", "hybrid", "offload_large")
    assert strategies.get("offload_large") is own
    assert TINY.replace(strategies=("baseline", "offload_large")).strategies == ("baseline", "offload_large")
    loss, gradients = loss_and_gradients(own)
    expected_loss, expected = loss_and_gradients(Baseline())
    assert torch.equal(loss, expected_loss)
    assert all(torch.equal(gradients[key], expected[key]) for key in expected)
    assert own.check_path(path_of(own)) == []


def test_registering_again_replaces(registry):
    strategies.register(make_own())
    second = strategies.register(make_own())
    assert strategies.get("offload_large") is second and len(strategies.names()) == 5


def test_registering_lists_every_problem(registry):
    class Empty(Strategy):
        name = "Not good"
    with pytest.raises(InputError) as caught:
        strategies.register(Empty())
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["name", "description", "check_path"]
    with pytest.raises(InputError, match="must not be that of a bundled strategy, got 'offload'"):
        strategies.register(make_own(name="offload"))


def test_own_strategy_travels_to_another_process(registry):
    strategies.register(make_own())
    pickled = strategies.to_bytes("offload_large")
    del strategies._registry["offload_large"]
    arrived = strategies.from_bytes(pickled)
    assert arrived.name == "offload_large" and strategies.get("offload_large") is arrived
    assert arrived.check_path(path_of(arrived)) == []


def test_bundled_strategies_need_no_pickle():
    assert [strategies.to_bytes(name) for name in workload.CORE_STRATEGIES] == [None] * 4


def test_get_with_engine_gives_a_copy_that_uses_it():
    engine = HostOffload()
    assert strategies.get("hybrid", engine).engine is engine
    assert strategies.get("hybrid").engine is not engine
    assert strategies.get("checkpoint", engine) is strategies.get("checkpoint")


def test_unknown_strategy_is_refused(registry):
    with pytest.raises(UnknownNameError, match="strategy: must be one of baseline, checkpoint, offload, hybrid, "
                                               "got 'swap'"):
        strategies.get("swap")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["llama", "qwen3", "mistral", "gemma2", "phi3", "olmo2", "mixtral", "gpt2",
                                        "bloom"])
def test_paths_are_proven_on_other_architectures(model_type, tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 4,
             "vocab_size": 128, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes |= {} if model_type in ("gpt2", "bloom") else {"num_key_value_heads": 2}
    sizes |= {"head_dim": 8} if model_type in ("qwen3", "gemma2") else {}
    AutoConfig.for_model(model_type, **sizes).save_pretrained(tmp_path)
    task = TINY.replace(model_id=f"local/{model_type}", model_path=str(tmp_path), seq_len=16)
    for name in workload.CORE_STRATEGIES:
        strategy = strategies.get(name)
        path = observe_path(make_step(strategy, task))[0]
        assert strategy.check_path(path) == [] and path.num_regions == 2, name
