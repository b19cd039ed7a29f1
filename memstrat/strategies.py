"""The strategies: what each changes, and what it must show to have run.

A strategy of your own takes about ten lines:

    import torch
    from memstrat.saved_tensors import HostOffload, counted_hooks
    from memstrat.strategies import Strategy, register

    class OffloadLarge(Strategy):
        name = "offload_large"
        description = "saved tensors of 1 MiB or more move to the host"

        def step_context(self, model):
            engine = HostOffload()
            return counted_hooks(
                lambda saved: engine.pack(saved) if saved.nbytes >= 2**20 else saved,
                lambda kept: kept if isinstance(kept, torch.Tensor) else engine.unpack(kept))

        def check_path(self, path):
            return [] if path.num_unpacked == path.num_packed > 0 else ["packed tensors must come back"]

    register(OffloadLarge())

Does not cover how a run is measured (`measure`) or which strategy is worth adopting (`decision`).
"""

from __future__ import annotations

import copy
import re
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import cloudpickle
from torch import nn

from memstrat.errors import InputError, ModelError, UnknownNameError
from memstrat.paths import CORE_PATH_RULES
from memstrat.records import PathEvidence
from memstrat.saved_tensors import HostOffload
from memstrat.workload import CORE_STRATEGIES, declare_strategy


class Strategy:
    """One way to keep the tensors that backward needs. The base keeps them all on the device.

    Override what differs; `name`, `description` and `check_path` are needed to register.
    """

    name: str = ""
    description: str = ""  # one line: what it does with saved tensors, and its price

    def prepare(self, model: nn.Module) -> None:
        """Change the model once, before its first step."""

    def step_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        """The context of every training step's forward and loss."""
        return nullcontext()

    def check_path(self, path: PathEvidence) -> list[str]:
        """What in a probe step's counts contradicts this strategy; empty if its path ran."""
        raise NotImplementedError(f"{type(self).__name__}: must have a check_path. Say what its path must show.")


class Baseline(Strategy):
    name = "baseline"
    description = "saved tensors stay on the device; the price is capacity"

    def check_path(self, path: PathEvidence) -> list[str]:
        return CORE_PATH_RULES["baseline"](path)


class Checkpoint(Strategy):
    name = "checkpoint"
    description = "only the inputs of each decoder layer stay; its forward runs again in backward"

    def prepare(self, model: nn.Module) -> None:
        enable_checkpointing(model)

    def check_path(self, path: PathEvidence) -> list[str]:
        return CORE_PATH_RULES["checkpoint"](path)


class Offload(Strategy):
    name = "offload"
    description = "every saved tensor moves to the host and back; the price is transfer"

    def __init__(self, engine: HostOffload | None = None):
        self.engine = engine or HostOffload()

    def step_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        return self.engine.hooks()

    def check_path(self, path: PathEvidence) -> list[str]:
        return CORE_PATH_RULES["offload"](path)


class Hybrid(Offload):
    name = "hybrid"
    description = "layer inputs move to the host, the rest of each layer is recomputed; both prices"

    def prepare(self, model: nn.Module) -> None:
        enable_checkpointing(model)

    def check_path(self, path: PathEvidence) -> list[str]:
        return CORE_PATH_RULES["hybrid"](path)


def enable_checkpointing(model: nn.Module) -> None:
    """Switch on non-reentrant checkpointing of every decoder layer; it acts in train mode only.

    transformers 5.24 renamed its switch; the older one, and older defaults, may be reentrant.

    Raises:
        ModelError: if the model has no switch or refuses.
    """
    switch = getattr(model, "activation_checkpointing_enable", None) or getattr(
        model, "gradient_checkpointing_enable", None)
    try:
        if switch is None:
            raise ValueError("it has no switch for it")
        switch({"use_reentrant": False})
    except ValueError as error:
        raise ModelError(f"model: must support activation checkpointing, got {type(model).__name__}: {error}. "
                         "Choose strategies baseline,offload, or another model.") from None


_registry: dict[str, Strategy] = {
    strategy.name: strategy for strategy in (Baseline(), Checkpoint(), Offload(), Hybrid())}


def register(strategy: Strategy) -> Strategy:
    """Make a strategy known to workloads, runs and records. The same name again replaces it.

    Raises:
        InputError: listing what is missing, or if the name belongs to a bundled strategy.
    """
    name, problems = strategy.name, []
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        problems.append(f"name: must be 1 to 40 lower-case letters, digits or '_', got {name!r}. Rename the strategy.")
    if name in CORE_STRATEGIES:
        problems.append(f"name: must not be that of a bundled strategy, got {name!r}. Rename the strategy.")
    if not strategy.description:
        problems.append("description: must be one line for people, got nothing. Say what the strategy does.")
    if type(strategy).check_path is Strategy.check_path:
        problems.append(f"check_path: must say what the path of {name!r} shows, got nothing. "
                        "Without it no run of the strategy could be evidence.")
    if problems:
        raise InputError(problems)
    _registry[name] = strategy
    declare_strategy(name)
    return strategy


def names() -> tuple[str, ...]:
    """Names of all strategies, the bundled ones first."""
    return tuple(_registry)


def get(name: str, engine: HostOffload | None = None) -> Strategy:
    """The strategy of that name; with `engine`, a copy that offloads through it.

    Raises:
        UnknownNameError: if nothing is registered under the name.
    """
    if name not in _registry:
        raise UnknownNameError(f"strategy: must be one of {', '.join(_registry)}, got {name!r}. "
                               "Choose one, or register your own.")
    strategy = _registry[name]
    if engine is not None and hasattr(strategy, "engine"):
        strategy = copy.copy(strategy)
        strategy.engine = engine
    return strategy


def to_bytes(name: str) -> bytes | None:
    """What another process needs to know a strategy; None for the bundled ones, which it knows."""
    return None if name in CORE_STRATEGIES else cloudpickle.dumps(get(name))


def from_bytes(pickled: bytes) -> Strategy:
    """Register a strategy from another process of ours. Unpickling runs its code: trust the sender."""
    return register(cloudpickle.loads(pickled))
