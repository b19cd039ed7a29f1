"""The check on two toys: what it must show for each strategy, and what it must not let pass."""

from __future__ import annotations

import pytest
import torch

from memstrat.autograd_check import check_cpu_strategies, check_cpu_strategy, run_cpu_strategy
from memstrat.errors import UnknownNameError
from memstrat.saved_tensors import HostOffload, counted_hooks
from memstrat.strategies import Checkpoint, Hybrid, Offload, Strategy
from memstrat.workload import CORE_STRATEGIES


@pytest.mark.parametrize("name", CORE_STRATEGIES)
def test_output_loss_and_gradients_equal_the_baseline(name):
    expected_output, expected_loss, expected_gradients, _ = run_cpu_strategy("baseline")
    output, loss, gradients, _ = run_cpu_strategy(name)
    assert output.shape == (2, 4) and loss.shape == ()
    assert torch.equal(output, expected_output) and torch.equal(loss, expected_loss)
    assert list(gradients) == ["regions.0.weight", "regions.0.bias", "head.weight", "head.bias"]
    assert all(torch.equal(gradients[key], expected_gradients[key]) for key in gradients)
    assert all(gradient.abs().sum() > 0 for gradient in gradients.values())


@pytest.mark.parametrize("name", ["baseline", "checkpoint"])
def test_linear_toy_saves_four_tensors_of_120_elements(name):
    *_, observation = run_cpu_strategy(name, observe_saved_tensors=True)
    assert {key: observation[key] for key in ("saved_count", "unpacked_count", "saved_numel")} == {
        "saved_count": 4, "unpacked_count": 4, "saved_numel": 120}
    assert "not memory savings" in observation["note"]


@pytest.mark.parametrize("name", ["offload", "hybrid"])
def test_observation_under_offload_is_none_not_invented(name):
    assert run_cpu_strategy(name, observe_saved_tensors=True)[3] is None


def test_observation_not_asked_for_is_none():
    assert run_cpu_strategy("baseline")[3] is None


def test_unknown_strategy_is_a_value_error():
    with pytest.raises(ValueError, match="strategy: must be one of baseline, checkpoint, offload, hybrid"):
        run_cpu_strategy("swap")
    with pytest.raises(UnknownNameError):
        check_cpu_strategy("swap")


def test_all_core_strategies_pass_with_their_figures():
    results = {result.name: result for result in check_cpu_strategies()}
    assert {name: result.problems for name, result in results.items()} == dict.fromkeys(CORE_STRATEGIES, ())
    # Saved by the region toy: 16 + 32 + 32 + 128 in the region, 16 + 32 + 8 after it; a checkpoint keeps
    # the region's input of 16 in place of the 208.
    assert {name: result.kept_numel for name, result in results.items()} == {
        "baseline": 264, "checkpoint": 72, "offload": 0, "hybrid": 0}
    assert {name: result.path.num_recomputed_regions for name, result in results.items()} == {
        "baseline": 0, "checkpoint": 1, "offload": 0, "hybrid": 1}
    assert {name: result.path.num_packed for name, result in results.items()} == {
        "baseline": 0, "checkpoint": 0, "offload": 7, "hybrid": 4}


class HandsThrough(HostOffload):
    """An engine that copies nothing, like save_on_cpu on a CPU."""

    def to_host(self, tensor):
        return tensor

    def to_device(self, host, device):
        return host


class Named(Strategy):
    name, description = "mine", "a strategy of the test"

    def check_path(self, path):
        return []


class IdentityCheckpoint(Checkpoint):
    def prepare(self, model):
        pass


class HalfPrecision(Named):
    def step_context(self, model):
        return counted_hooks(lambda saved: saved.half(), lambda kept: kept.float())


class DropsGradients(Named):
    def prepare(self, model):
        model.head.bias.requires_grad_(False)


@pytest.mark.parametrize(("strategy", "problem"), [
    (IdentityCheckpoint(), "recomputed regions must be all 1 and more than 0, got 0"),
    (Offload(HandsThrough()), "every saved tensor must move to other storage, got 264 elements left in place"),
    (Hybrid(HandsThrough()), "every saved tensor must move to other storage, got 72 elements left in place"),
    (Named(), "saved elements left in place must be fewer than the baseline's 264, got 264"),
    (HalfPrecision(), "must equal the baseline's"),
    (DropsGradients(), "gradient of head.bias must equal the baseline's"),
], ids=["checkpoint", "offload", "hybrid", "own", "rounds", "drops"])
def test_strategy_that_does_nothing_or_changes_results_fails(strategy, problem):
    result = check_cpu_strategy(strategy)
    assert not result.is_ok
    assert any(problem in found for found in result.problems)


def test_strategy_of_ones_own_that_moves_large_tensors_passes():
    class OffloadLarge(Named):
        def step_context(self, model):
            engine = HostOffload()
            return counted_hooks(lambda saved: engine.pack(saved) if saved.numel() > 40 else saved,
                                 lambda kept: kept if isinstance(kept, torch.Tensor) else engine.unpack(kept))
    result = check_cpu_strategy(OffloadLarge())
    assert result.is_ok and 0 < result.kept_numel < 264
