"""Hooks on the tensors autograd saves: move them to the host, count them, tell them apart.

* `HostOffload`: where saved tensors go and how they come back, with torch's `save_on_cpu` semantics.
* `counted_hooks`: torch's saved-tensor hooks, reporting to whoever watches; nobody does in a timed step.
* `PathObserver`: watches one step and says what a strategy did: packs, kinds, recomputed regions.

Only the innermost saved-tensor hooks act, so an observer can never be a second pair of hooks: the
hooks that act report instead. Does not cover double backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from memstrat.errors import ModelError
from memstrat.records import PathEvidence

KINDS = ("parameter", "duplicate", "logits", "region_input", "other")


class Watcher:
    """Hears of every pack and unpack while it watches (see `watch_saved_tensors`). Ignores all by default."""

    def host(self) -> AbstractContextManager[Any]:
        """Around everything a pack hook allocates: it belongs to the host tier."""
        return nullcontext()

    def on_pack(self, tensor: torch.Tensor, packed: Any) -> None:
        """A pack hook took `tensor` and keeps `packed` in its place."""

    def on_unpack(self, tensor: torch.Tensor) -> None:
        """Backward got `tensor` back."""


# One for the process, not for the thread: on CUDA autograd unpacks in a thread of its own.
_watcher: Watcher | None = None


@contextmanager
def watch_saved_tensors(watcher: Watcher | None) -> Iterator[None]:
    """Let `watcher` hear of every pack and unpack by `counted_hooks` inside; None for nobody."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


def counted_hooks(pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]) -> saved_tensors_hooks:
    """torch's `saved_tensors_hooks` that report to the watcher, if there is one.

    Use it in a strategy of your own: packs made by other hooks are not counted.
    """
    def pack_and_report(tensor: torch.Tensor) -> Any:
        if _watcher is None:
            return pack(tensor)
        with _watcher.host():
            packed = pack(tensor)
        _watcher.on_pack(tensor, packed)
        return packed

    def unpack_and_report(packed: Any) -> torch.Tensor:
        tensor = unpack(packed)
        if _watcher is not None:
            _watcher.on_unpack(tensor)
        return tensor

    return saved_tensors_hooks(pack_and_report, unpack_and_report)


def hooks_are_active() -> bool:
    """Whether any saved-tensor hooks act on what autograd saves here."""
    probe = torch.ones(1, requires_grad=True)
    result = probe * probe  # held, since older versions of torch free what it saved along with it
    try:
        result.grad_fn._raw_saved_self.register_hooks(lambda tensor: tensor, lambda tensor: tensor)
    except RuntimeError:  # a saved tensor takes one pair of hooks only
        return True
    return False


class HostOffload:
    """Saved tensors go to pageable host memory and back, one synchronous copy each way.

    The semantics of torch's `save_on_cpu`: everything autograd saves, parameters and repeated
    storages included. Two differences: on a CPU the copies are real (`save_on_cpu` copies nothing
    there), and strides are kept, so that backward runs the very kernels it would have run.
    A better engine overrides `pack` and `unpack`, or only where the copies live.
    """

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="cpu").copy_(tensor)

    def to_device(self, host: torch.Tensor, device: torch.device) -> torch.Tensor:
        return torch.empty_like(host, device=device).copy_(host)

    def pack(self, tensor: torch.Tensor) -> Any:
        return tensor.device, self.to_host(tensor)

    def unpack(self, packed: Any) -> torch.Tensor:
        device, host = packed
        return self.to_device(host, device)

    def hooks(self) -> saved_tensors_hooks:
        """The context in which autograd saves through this engine."""
        return counted_hooks(self.pack, self.unpack)


def find_regions(model: nn.Module) -> list[nn.Module]:
    """The regions a checkpoint would drop and run again: transformers' checkpointing layers.

    Other models: the longest `ModuleList`. Layers inside a layer are not counted again.

    Raises:
        ModelError: if the model has neither.
    """
    # By name, so that a model that is not transformers' does not wait for its import.
    layers = [module for module in model.modules()
              if any(base.__name__ == "GradientCheckpointingLayer" for base in type(module).__mro__)]
    inner = {id(part) for layer in layers for part in layer.modules() if part is not layer}
    layers = [layer for layer in layers if id(layer) not in inner]
    if not layers:
        lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
        layers = list(max(lists, key=len)) if lists else []
    if not layers:
        raise ModelError(f"model: must have checkpointing layers or a ModuleList, got {type(model).__name__} "
                         "without either. Use a decoder model of transformers.")
    return layers


@dataclass(frozen=True)
class _Pack:
    storage: int
    num_bytes: int
    is_logits: bool
    is_inside: bool


class PathObserver(Watcher):
    """Watch one step: enter it around forward and backward, call `start_backward` in between.

    Counts what `counted_hooks` report, and which regions run forward again during backward. Costs
    time, so it is never attached to a timed step.

    Kinds of a packed tensor, first match: `parameter` (shares a parameter's storage; a bf16 copy
    under autocast does not), `duplicate` (its storage was packed before in this step), `logits`
    (last dimension is the vocabulary), `region_input`, `other`. Empty tensors do not count: older
    versions of torch save one with each checkpoint.

    Args:
        model: its parameters and regions are told apart.
        vocab_size: of the model; None if it has no logits.
        regions: instead of those `find_regions` finds.
    """

    def __init__(self, model: nn.Module, vocab_size: int | None = None, regions: Sequence[nn.Module] | None = None):
        self.regions = list(regions) if regions is not None else find_regions(model)
        self.vocab_size = vocab_size
        self.host_bytes = self.peak_host_bytes = 0
        self._refs: dict[int, StorageWeakRef] = {}
        self._parameters = {self._key(parameter) for parameter in model.parameters()}
        self._region_inputs: dict[int, int] = {}
        self._arguments: set[int] = set()
        self._recomputed: set[int] = set()
        self._packs: list[_Pack] = []
        self._num_unpacked = self._unpacked_bytes = 0
        self._num_foreign = 0
        self._region: int | None = None
        self._is_past_input = self._is_backward = False
        self._stack = ExitStack()

    def __enter__(self) -> PathObserver:
        for index, region in enumerate(self.regions):
            handles = [region.register_forward_pre_hook(self._region_hook(index), with_kwargs=True),
                       region.register_forward_hook(self._leave_region)]
            # The layer's own hooks stay outside transformers' checkpoint, and early stop ends a
            # recomputation before post-hooks: only pre-hooks of its parts see it run again.
            handles += [part.register_forward_pre_hook(self._part_hook(index)) for part in region.children()]
            for handle in handles:
                self._stack.callback(handle.remove)
        self._stack.enter_context(watch_saved_tensors(self))
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._stack.close()

    def start_backward(self) -> None:
        """From here on, a region that runs forward is recomputed."""
        self._is_backward = True

    def look_for_foreign_hooks(self) -> None:
        """Count one pack that never comes back if hooks that do not report act here.

        Such hooks (left over, or torch's own `save_on_cpu`) would make every other count a guess.
        """
        reports = _Reports()
        with watch_saved_tensors(reports):
            is_hooked = hooks_are_active()
        self._num_foreign += is_hooked and not reports.num_packed

    def on_pack(self, tensor: torch.Tensor, packed: Any) -> None:
        if not tensor.nbytes:
            return
        key = self._key(tensor)
        # Between a layer's own pre-hook and those of its parts, a checkpoint packs the layer's arguments.
        is_argument = not self._is_past_input and key in self._arguments
        self._packs.append(_Pack(
            storage=key, num_bytes=tensor.nbytes,
            is_logits=tensor.dim() > 1 and tensor.shape[-1] == self.vocab_size,
            is_inside=self._region is not None and not is_argument))
        for copy in tensors_in(packed):
            if self._key(copy) != key:
                self._hold_on_host(copy)

    def on_unpack(self, tensor: torch.Tensor) -> None:
        self._num_unpacked += bool(tensor.nbytes)
        self._unpacked_bytes += tensor.nbytes

    def evidence(self) -> PathEvidence:
        """What was seen. Complete once backward is over."""
        # Kinds are settled only now: some versions of transformers pack a region's input before
        # the layer's own pre-hook has named it.
        region_inputs = set(self._region_inputs.values())
        by_kind, seen = dict.fromkeys(KINDS, 0), set()
        for pack in self._packs:
            if pack.storage in self._parameters:
                kind = "parameter"
            elif pack.storage in seen:
                kind = "duplicate"
            elif pack.is_logits:
                kind = "logits"
            else:
                kind = "region_input" if pack.storage in region_inputs else "other"
            seen.add(pack.storage)
            by_kind[kind] += pack.num_bytes
        return PathEvidence(
            num_regions=len(self.regions), num_recomputed_regions=len(self._recomputed),
            num_packed=len(self._packs) + self._num_foreign, num_unpacked=self._num_unpacked,
            packed_bytes=sum(pack.num_bytes for pack in self._packs), unpacked_bytes=self._unpacked_bytes,
            packed_bytes_by_kind=by_kind,
            num_packed_inside_regions=sum(pack.is_inside for pack in self._packs),
            num_region_inputs_packed=len(region_inputs & seen))

    # -- inside -----------------------------------------------------------------------------

    def _key(self, tensor: torch.Tensor) -> int:
        """A number for the storage, never given to another one while this observer lives."""
        ref = StorageWeakRef(tensor.untyped_storage())
        return self._refs.setdefault(ref.cdata, ref).cdata

    def _region_hook(self, index: int) -> Callable[..., None]:
        def enter_region(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self._is_backward:
                arguments = [self._key(tensor) for tensor in tensors_in([*args, *kwargs.values()])]
                self._region, self._is_past_input, self._arguments = index, False, set(arguments)
                if arguments:
                    self._region_inputs[index] = arguments[0]
        return enter_region

    def _part_hook(self, index: int) -> Callable[..., None]:
        def enter_part(module: nn.Module, args: tuple[Any, ...]) -> None:
            self._region, self._is_past_input = index, True
            if self._is_backward:
                self._recomputed.add(index)
        return enter_part

    def _leave_region(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self._region = None

    def _hold_on_host(self, copy: torch.Tensor) -> None:
        num_bytes = copy.untyped_storage().nbytes()
        self.host_bytes += num_bytes
        self.peak_host_bytes = max(self.peak_host_bytes, self.host_bytes)
        weakref.finalize(copy, self._release, num_bytes).atexit = False

    def _release(self, num_bytes: int) -> None:
        self.host_bytes -= num_bytes


class _Reports(Watcher):
    """Counts packs, nothing else."""

    num_packed = 0

    def on_pack(self, tensor: torch.Tensor, packed: Any) -> None:
        self.num_packed += 1


def tensors_in(values: Any) -> Iterator[torch.Tensor]:
    """Tensors in nested lists and tuples, in order."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (list, tuple)):
        for value in values:
            yield from tensors_in(value)
