"""Do the strategies change what training computes? Seen on two toys, on a CPU, in seconds.

Runs the very strategy objects that a measurement runs. Passing proves semantics (same output, loss
and gradients, and a path that really ran), not memory savings: toys have nothing to save.

    for result in check_cpu_strategies():
        print(result.name, result.is_ok, result.problems)
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from memstrat import strategies
from memstrat.records import PathEvidence
from memstrat.saved_tensors import PathObserver, hooks_are_active, tensors_in
from memstrat.strategies import Strategy
from memstrat.workload import CORE_STRATEGIES

SEED, BATCH = 42, 2
ATOL, RTOL = 1e-6, 1e-5
NOTE = "Counts what autograd saved. It proves semantics, not memory savings."

Gradients = dict[str, torch.Tensor]


class Toy(nn.Module):
    """A region that a checkpoint may drop and run again, and a head outside of it."""

    def __init__(self, region: nn.Module, head: nn.Module):
        super().__init__()
        self.regions = nn.ModuleList([region])
        self.head = head
        self._run = lambda region, hidden: region(hidden)

    def activation_checkpointing_enable(self, activation_checkpointing_kwargs: dict[str, Any]) -> None:
        """The switch that transformers' models have."""
        self._run = partial(checkpoint, **activation_checkpointing_kwargs)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.head(self._run(self.regions[0], hidden))


def make_linear_toy() -> Toy:
    """Linear 8->16, Linear 16->4. Checkpointing its first layer drops nothing: an input is all it saves."""
    torch.manual_seed(SEED)
    return Toy(nn.Linear(8, 16), nn.Linear(16, 4))


def make_region_toy() -> Toy:
    """A region Linear 8->16, GELU, Linear 16->8 with something to drop, then Linear 8->4."""
    torch.manual_seed(SEED)
    return Toy(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), nn.Linear(8, 4))


def run_cpu_strategy(strategy: str | Strategy, observe_saved_tensors: bool = False) -> tuple[
        torch.Tensor, torch.Tensor, Gradients, dict[str, Any] | None]:
    """One forward and backward of the linear toy under a strategy: mean-squared loss, batch 2, seed 42.

    Args:
        strategy: a registered name, or a strategy.
        observe_saved_tensors: count what autograd saves.

    Returns:
        output (2, 4), loss (scalar), gradients by parameter name, and the observation: `saved_count`,
        `unpacked_count`, `saved_numel` (elements), `note`. The observation is None when not asked
        for, and under offload and hybrid: their own hooks hold the tape, an outer pair sees nothing.

    Raises:
        UnknownNameError: (a ValueError) if nothing is registered under the name.
    """
    return _run(make_linear_toy(), _resolve(strategy), observe_saved_tensors)


@dataclass(frozen=True)
class StrategyCheck:
    """What the check found about one strategy. `is_ok` proves semantics, not memory savings."""

    name: str
    problems: tuple[str, ...]
    path: PathEvidence
    kept_numel: int
    """Elements of saved tensors that stayed in their own storage, in the region toy."""
    note: str = NOTE

    @property
    def is_ok(self) -> bool:
        return not self.problems


def check_cpu_strategy(strategy: str | Strategy) -> StrategyCheck:
    """Hold one strategy against the baseline on both toys. A strategy that does nothing fails.

    It fails if output, loss or a gradient of either toy differs from the baseline's (atol 1e-6,
    rtol 1e-5), if the counts contradict its path rule, or if it is not the baseline and keeps as
    many saved elements in place as the baseline does.
    """
    strategy = _resolve(strategy)
    problems = []
    for toy, make in (("linear toy", make_linear_toy), ("region toy", make_region_toy)):
        expected = _run(make(), strategies.get("baseline"))
        problems += [f"{toy}: {problem}" for problem in _differences(expected, _run(make(), strategy))]
    path, kept_numel = _observe(strategy)
    _, baseline_numel = _observe(strategies.get("baseline"))
    problems += [f"region toy: {problem}" for problem in strategy.check_path(path)]
    if strategy.name in ("offload", "hybrid") and kept_numel:
        problems.append("region toy: every saved tensor must move to other storage, "
                        f"got {kept_numel} elements left in place")
    elif strategy.name != "baseline" and kept_numel >= baseline_numel:
        problems.append(f"region toy: saved elements left in place must be fewer than the baseline's {baseline_numel}, "
                        f"got {kept_numel}")
    return StrategyCheck(strategy.name, tuple(problems), path, kept_numel)


def check_cpu_strategies(names: Iterable[str | Strategy] = CORE_STRATEGIES) -> list[StrategyCheck]:
    """`check_cpu_strategy` for each."""
    return [check_cpu_strategy(name) for name in names]


# -- inside ---------------------------------------------------------------------------------


class _Counter:
    """The outermost hooks: hand every tensor through and count those that are not empty."""

    def __init__(self) -> None:
        self.saved_count = self.unpacked_count = self.saved_numel = 0

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.saved_count += bool(tensor.numel())
        self.saved_numel += tensor.numel()
        return tensor

    def unpack(self, tensor: torch.Tensor) -> torch.Tensor:
        self.unpacked_count += bool(tensor.numel())
        return tensor


class _ToyObserver(PathObserver):
    """Also counts the elements that a pack hook leaves where they were."""

    kept_numel = 0

    def on_pack(self, tensor: torch.Tensor, packed: Any) -> None:
        super().on_pack(tensor, packed)
        storage = tensor.untyped_storage().data_ptr()
        if any(kept.untyped_storage().data_ptr() == storage for kept in tensors_in(packed)):
            self.kept_numel += tensor.numel()


def _resolve(strategy: str | Strategy) -> Strategy:
    return strategies.get(strategy) if isinstance(strategy, str) else strategy


def _inputs() -> torch.Tensor:
    return torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(SEED))


def _run(model: Toy, strategy: Strategy, observe: bool = False) -> tuple[
        torch.Tensor, torch.Tensor, Gradients, dict[str, Any] | None]:
    strategy.prepare(model)
    counter, is_seen = _Counter(), observe
    with ExitStack() as stack:
        if observe:
            # Hooks of the strategy's own, or left over from another, would hide the tape from ours.
            with strategy.step_context(model):
                is_seen = not hooks_are_active()
            stack.enter_context(saved_tensors_hooks(counter.pack, counter.unpack))
        stack.enter_context(strategy.step_context(model))
        output = model(_inputs())
        loss = output.pow(2).mean()
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return output.detach(), loss.detach(), gradients, {**vars(counter), "note": NOTE} if is_seen else None


def _observe(strategy: Strategy) -> tuple[PathEvidence, int]:
    """One watched step of the region toy: its path, and the saved elements left in place."""
    model, counter = make_region_toy(), _Counter()
    strategy.prepare(model)
    observer = _ToyObserver(model, regions=model.regions)
    with observer:
        with saved_tensors_hooks(counter.pack, counter.unpack), strategy.step_context(model):
            output = model(_inputs())
            loss = output.pow(2).mean()
        observer.start_backward()
        loss.backward()
    return observer.evidence(), counter.saved_numel + observer.kept_numel


def _differences(expected: tuple[Any, ...], found: tuple[Any, ...]) -> list[str]:
    (output, loss, gradients, _), (other_output, other_loss, other_gradients, _) = expected, found
    pairs = {"output": (output, other_output), "loss": (loss, other_loss)}
    pairs |= {f"gradient of {name}": (gradient, other_gradients.get(name)) for name, gradient in gradients.items()}
    return [f"{what} must equal the baseline's" for what, (ours, theirs) in pairs.items()
            if theirs is None or not torch.allclose(ours, theirs, atol=ATOL, rtol=RTOL)]
