"""Three further strategies: every n-th layer, boundary offload, selective checkpointing.

Importing this module registers them. Each has a path check of its own, so that a run which silently
fell back to plain checkpointing, or to nothing, is no evidence. Not covered: how to choose between
them (measure; see notebook 06).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from memstrat.records import PathEvidence
from memstrat.saved_tensors import HostOffload, find_regions
from memstrat.strategies import Offload, Strategy, enable_checkpointing, register

_aten = torch.ops.aten
# Matrix products and attention: dear to compute, and small beside what they would save again.
KEPT_OPERATORS = frozenset({
    _aten.mm.default, _aten.addmm.default, _aten.bmm.default,
    _aten._scaled_dot_product_flash_attention.default, _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default, _aten._scaled_dot_product_cudnn_attention.default,
})


class EveryNthLayer(Strategy):
    """Checkpoint one decoder layer in `every`; the others keep their saved tensors on the device."""

    def __init__(self, every: int = 2):
        self.every = every
        self.name = "every_2nd_layer" if every == 2 else f"every_{every}th_layer"
        self.description = f"one decoder layer in {every} is recomputed, the others keep their saved tensors"

    def prepare(self, model: nn.Module) -> None:
        switch = getattr(model, "activation_checkpointing_enable", None)
        if switch is not None and "every_n_layers" in inspect.signature(switch).parameters:
            switch({"use_reentrant": False}, every_n_layers=self.every)
            return
        enable_checkpointing(model)  # older transformers know all layers or none
        for index, layer in enumerate(find_regions(model)):
            layer.gradient_checkpointing = index % self.every == 0

    def check_path(self, path: PathEvidence) -> list[str]:
        wanted = -(-path.num_regions // self.every)
        problems = []
        if not path.num_recomputed_regions == wanted > 0:
            problems.append(f"recomputed regions must be {wanted} of {path.num_regions}, "
                            f"got {path.num_recomputed_regions}")
        if path.num_packed:
            problems.append(f"packed tensors must be 0, got {path.num_packed}")
        return problems


class BoundaryOffload(Offload):
    """Layer inputs move to the host, layers are recomputed, and what lies outside layers stays.

    transformers' own `offload` switch makes the same copies, but in hooks that report to nobody, so a
    run could not prove that they were made. Here they go around the same per-layer checkpoint.
    """

    name = "boundary_offload"
    description = "layer inputs move to the host and layers are recomputed; logits and embeddings stay on the device"

    def prepare(self, model: nn.Module) -> None:
        enable_checkpointing(model)
        for layer in find_regions(model):
            layer._gradient_checkpointing_func = partial(self._run_region, layer._gradient_checkpointing_func)

    def step_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        return nullcontext()

    def check_path(self, path: PathEvidence) -> list[str]:
        outside = {kind: size for kind, size in path.packed_bytes_by_kind.items() if kind != "region_input" and size}
        checks = (
            (path.num_recomputed_regions == path.num_regions > 0,
             f"recomputed regions must be all {path.num_regions}, got {path.num_recomputed_regions}"),
            (path.num_region_inputs_packed == path.num_regions,
             f"packed region inputs must be {path.num_regions}, got {path.num_region_inputs_packed}"),
            (path.num_unpacked == path.num_packed, f"unpacked must be {path.num_packed}, got {path.num_unpacked}"),
            (not outside, f"nothing but region inputs must be packed, got bytes of {', '.join(outside)}"))
        return [problem for passed, problem in checks if not passed]

    def _run_region(self, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self.engine.hooks():
            return run(*args, **kwargs)


class SelectiveCheckpoint(Strategy):
    """Recompute each layer, except the results of matrix products and attention, which are kept.

    Bundled counts cannot tell it from plain checkpointing: a region runs again either way. So it counts
    the operators whose results it kept, and those of them that ran again all the same.
    """

    name = "selective_checkpoint"
    description = "layers are recomputed, but results of matrix products and attention are kept on the device"

    def __init__(self) -> None:
        self.num_kept = self.num_rerun = 0

    def prepare(self, model: nn.Module) -> None:
        enable_checkpointing(model)
        for layer in find_regions(model):
            layer._gradient_checkpointing_func = partial(layer._gradient_checkpointing_func, context_fn=self._contexts)

    def step_context(self, model: nn.Module) -> AbstractContextManager[Any]:
        self.num_kept = self.num_rerun = 0
        return nullcontext()

    def check_path(self, path: PathEvidence) -> list[str]:
        checks = (
            (path.num_recomputed_regions == path.num_regions > 0,
             f"recomputed regions must be all {path.num_regions}, got {path.num_recomputed_regions}"),
            (path.num_packed == 0, f"packed tensors must be 0, got {path.num_packed}"),
            (self.num_kept > 0, "kept operator results must be more than 0, got 0"),
            (self.num_rerun == 0, f"kept operators that ran again must be 0, got {self.num_rerun}"))
        return [problem for passed, problem in checks if not passed]

    def _contexts(self) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        keeping, reusing = create_selective_checkpoint_contexts(self._policy)
        return keeping, _Both(_Reruns(self), reusing)

    def _policy(self, context: Any, operator: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if operator not in KEPT_OPERATORS:
            return CheckpointPolicy.PREFER_RECOMPUTE
        if not context.is_recompute:
            self.num_kept += 1
        return CheckpointPolicy.MUST_SAVE


class _Reruns(TorchDispatchMode):
    """Sees what a recomputation really runs: results taken from the kept ones never come down here."""

    def __init__(self, strategy: SelectiveCheckpoint):
        super().__init__()
        self.strategy = strategy

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in KEPT_OPERATORS:
            self.strategy.num_rerun += 1
        return func(*args, **(kwargs or {}))


class _Both:
    """Two contexts entered in order, as often as asked."""

    def __init__(self, *contexts: AbstractContextManager[Any]):
        self.contexts = contexts
        self.stack = ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as stack:
            for context in self.contexts:
                stack.enter_context(context)
            self.stack = stack.pop_all()

    def __exit__(self, *exc_info: Any) -> None:
        self.stack.__exit__(*exc_info)


register(EveryNthLayer(2))
register(BoundaryOffload(HostOffload()))
register(SelectiveCheckpoint())
