from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from memstrat import models, probe, strategies, strategies_extra, training_step
from memstrat.experiment import load_experiment
from memstrat.records import PathEvidence

NAMES = ("every_2nd_layer", "boundary_offload", "selective_checkpoint")


def make_step(name: str, prepare: bool = True) -> training_step.TrainingStep:
    workload = load_experiment("tiny").workload.replace(seq_len=32)
    model = models.build_model(workload, "cpu")
    train_ids, _ = models.make_inputs(workload, model.config, "cpu")
    if prepare:
        strategies.get(name).prepare(model)
    return training_step.TrainingStep(workload, strategies.get(name), model, train_ids)


def observe(name: str, prepare: bool = True) -> tuple[PathEvidence, list[str]]:
    path, *_ = probe.observe_path(make_step(name, prepare))
    return path, strategies.get(name).check_path(path)


def loss_and_gradients(name: str) -> tuple[torch.Tensor, list[torch.Tensor]]:
    step = make_step(name)
    loss = step.forward()
    step.backward(loss)
    return loss.detach(), [parameter.grad for parameter in step.model.parameters()]


@pytest.mark.parametrize("name", NAMES)
def test_training_is_the_baselines_bit_for_bit(name):
    loss, gradients = loss_and_gradients("baseline")
    other_loss, other_gradients = loss_and_gradients(name)
    assert torch.equal(loss, other_loss)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, other_gradients, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_path_is_verified_when_the_strategy_ran(name):
    assert observe(name)[1] == []


@pytest.mark.parametrize("name", NAMES)
def test_path_is_refused_when_the_strategy_was_not_prepared(name):
    assert observe(name, prepare=False)[1]


def test_every_2nd_layer_recomputes_two_of_four():
    path, _ = observe("every_2nd_layer")
    assert (path.num_regions, path.num_recomputed_regions, path.num_packed) == (4, 2, 0)


def test_every_2nd_layer_without_the_switch_of_transformers_does_the_same(monkeypatch):
    from transformers import PreTrainedModel

    def old_switch(self, gradient_checkpointing_kwargs):
        self._set_gradient_checkpointing(True, partial(checkpoint, **gradient_checkpointing_kwargs))

    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable", raising=False)
    monkeypatch.setattr(PreTrainedModel, "gradient_checkpointing_enable", old_switch)
    path, problems = observe("every_2nd_layer")
    assert problems == [] and path.num_recomputed_regions == 2


def test_boundary_offload_moves_the_layer_inputs_and_nothing_else():
    path, _ = observe("boundary_offload")
    assert (path.num_packed, path.num_unpacked, path.num_region_inputs_packed) == (4, 4, 4)
    assert path.packed_bytes_by_kind == {"parameter": 0, "duplicate": 0, "logits": 0,
                                         "region_input": 4 * 32 * 128 * 4, "other": 0}


def test_selective_checkpoint_is_refused_where_nothing_was_kept(monkeypatch):
    monkeypatch.setattr(strategies_extra, "KEPT_OPERATORS", frozenset())
    _, problems = observe("selective_checkpoint")
    assert problems[0] == "kept operator results must be more than 0, got 0"


def test_selective_checkpoint_is_refused_where_kept_operators_run_again(monkeypatch):
    strategy = strategies.get("selective_checkpoint")

    def forgetful(context, operator, *args, **kwargs):
        strategy.num_kept += 1
        return torch.utils.checkpoint.CheckpointPolicy.PREFER_RECOMPUTE

    monkeypatch.setattr(strategy, "_policy", forgetful)
    _, problems = observe("selective_checkpoint")
    assert problems[0].startswith("kept operators that ran again must be 0, got ")


def test_plain_checkpointing_does_not_pass_for_an_extra_strategy():
    path, problems = observe("checkpoint")
    assert problems == []
    for name in ("every_2nd_layer", "boundary_offload"):
        assert strategies.get(name).check_path(path)


def test_bytes_after_forward_lie_between_checkpoint_and_baseline():
    alive = {}
    for name in ("baseline", "checkpoint", *NAMES):
        step = make_step(name)
        step()
        alive[name] = probe.observe_memory(step)[1]
    assert alive["boundary_offload"] < alive["checkpoint"] < alive["every_2nd_layer"] < alive["baseline"]
    assert alive["checkpoint"] < alive["selective_checkpoint"] < alive["baseline"]


def test_extra_strategies_cross_a_process_boundary():
    for name in NAMES:
        assert strategies.from_bytes(strategies.to_bytes(name)).name == name
