"""`LiveBytes`: count the bytes of live tensors of a training step, device and host tier apart.

A dispatch mode sees every tensor an operation returns. A storage is counted once, however many
views or in-place results share it, and a weak reference tells when it is gone; no tensor is kept
alive. Results do not change.

Does not cover scratch memory inside a kernel, which no operation returns, nor rounding by an
allocator (`memstrat.memory.allocator` adds that).

    live = LiveBytes(device_type="cpu", vocab_size=model.config.vocab_size)
    live.register(model.parameters(), "parameters")
    with live:
        with live.phase("forward"):
            loss = model(input_ids, labels=labels).loss
        with live.phase("backward"):
            loss.backward()
        with live.phase("optimizer"):
            optimizer.step()
    live.phases["backward"].peak_device_bytes
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memstrat.memory.profile import (
    DEVICE,
    FREE,
    HOST,
    MALLOC,
    PHASE_END,
    PHASE_START,
    Block,
    Event,
    MemoryProfile,
    PhaseProfile,
    TimelinePoint,
    build_profile,
)

_ADD = torch.ops.aten.add.Tensor
_LIFT = torch.ops.aten.lift_fresh.default  # how `torch.tensor(...)` shows: a new storage as its own input
_COPIES = frozenset({torch.ops.aten._to_copy.default, torch.ops.aten.clone.default,
                     torch.ops.aten.copy_.default})


class LiveBytes(TorchDispatchMode):
    """Count live bytes by tier, phase and category while it is entered. One step, used once.

    Args:
        device_type: the device that plays the GPU: `cpu` in a real CPU run, `meta` in an estimate.
            Other devices, and all that is allocated inside `host()`, are the host tier.
        vocab_size: tensors whose last dimension is this count as `logits_and_loss`; without it
            they count as activations and temporaries.
    """

    def __init__(self, device_type: str = "cpu", vocab_size: int | None = None):
        super().__init__()
        self.device_type = device_type
        self.vocab_size = vocab_size
        self.blocks: list[Block] = []
        self.events: list[Event] = []
        self.recompute_ends: dict[int, int] = {}
        self.gradient_blocks: dict[int, int] = {}
        """Block of each registered parameter's gradient, by the parameter's place, as last seen."""
        self._phase = ""
        self._host_depth = 0
        self._index_by_storage: dict[int, int] = {}
        self._storage_refs: dict[int, weakref.ref] = {}
        self._parameters: list[weakref.ref] = []
        self._accumulation: tuple[int, int] | None = None
        self._num_recomputes = 0
        self._is_recomputing = False
        self._was_entered = False

    # -- what the caller says ---------------------------------------------------------------

    def register(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Count tensors that exist already. A storage seen before keeps its first category.

        Inside `host()` they count to the host tier (AdamW's step counters, which CUDA keeps there).
        """
        for tensor in tensors:
            if category == "parameters":
                self._parameters.append(weakref.ref(tensor))
            self._observe(tensor, category)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Everything inside belongs to phase `name` (forward, backward, optimizer). Not nested."""
        self._phase = name
        self.events.append(Event(PHASE_START, -1, 0, "", name))
        try:
            yield
        finally:
            self._end_recompute()
            self._mark_gradients()
            self.events.append(Event(PHASE_END, -1, 0, "", name))
            self._phase = ""

    @contextmanager
    def host(self) -> Iterator[None]:
        """What is allocated inside belongs to the host tier."""
        self._host_depth += 1
        try:
            yield
        finally:
            self._host_depth -= 1

    def log_malloc(self, num_bytes: int, category: str | None = None) -> int:
        """Log a device block that no tensor stands for (a kernel's workspace). Returns its number."""
        self.blocks.append(Block(num_bytes, DEVICE, self._phase, category))
        self._log(MALLOC, len(self.blocks) - 1)
        return len(self.blocks) - 1

    def log_free(self, block: int) -> None:
        """Log the end of a block of `log_malloc`."""
        self._log(FREE, block)

    # -- what it found ----------------------------------------------------------------------

    @cached_property
    def profile(self) -> MemoryProfile:
        """Peaks, categories and timeline; complete once the step is over."""
        return build_profile(self.blocks, self.events, self.recompute_ends)

    @property
    def phases(self) -> dict[str, PhaseProfile]:
        return self.profile.phases

    @property
    def peak_device_bytes(self) -> int:
        return self.profile.peak_device_bytes

    @property
    def peak_host_bytes(self) -> int:
        return self.profile.peak_host_bytes

    @property
    def categories_at_peak(self) -> dict[str, int]:
        return self.profile.categories_at_peak

    @property
    def resident_after_forward_bytes(self) -> int:
        return self.profile.resident_after_forward_bytes

    @property
    def timeline(self) -> list[TimelinePoint]:
        return self.profile.timeline

    # -- the mode ---------------------------------------------------------------------------

    def __enter__(self) -> LiveBytes:
        if self._was_entered:
            raise RuntimeError("LiveBytes: must be used for one step, got a second `with`. "
                               "Make a new one for the next step.")
        self._was_entered = True
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        super().__exit__(*exc_info)
        self._end_recompute()
        self._mark_gradients()
        # Without the references nothing that happens later enters the log.
        self._storage_refs.clear()
        self._index_by_storage.clear()
        self._parameters.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = self._run(func, args, kwargs or {})
        if func is _ADD and self._phase == "backward" and not torch.is_grad_enabled():
            self._accumulation = self._accumulation_of(args)
        if isinstance(result, torch.Tensor):
            self._observe(result, None, func, args)
        elif isinstance(result, (list, tuple)):
            for item in result:
                if isinstance(item, torch.Tensor):
                    self._observe(item, None, func, args)
        self._accumulation = None if self._accumulation is None else self._accumulation_seen()
        return result

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The operation itself; a subclass may answer it otherwise."""
        return func(*args, **kwargs)

    # -- bookkeeping ------------------------------------------------------------------------

    def _observe(self, tensor: torch.Tensor, category: str | None, func: Any = None,
                 args: Any = ()) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        index = self._index_by_storage.get(key)
        num_bytes = storage.nbytes()
        if index is not None:
            if func in _COPIES:
                self._note_copy(index, args[1:2])
            if num_bytes == self.blocks[index].num_bytes:
                return
            self._log(FREE, index)
        elif num_bytes == 0 or (
                func is not None and func is not _LIFT and _shares_input(key, args)):
            return
        if self._phase == "backward":
            self._follow_recompute()
        on_host = self._host_depth > 0 or tensor.device.type != self.device_type
        is_logits = bool(self.vocab_size) and tensor.dim() > 1 and tensor.shape[-1] == self.vocab_size
        self.blocks.append(Block(num_bytes, HOST if on_host else DEVICE, self._phase, category, is_logits,
                                 self._num_recomputes if self._is_recomputing else 0))
        index = len(self.blocks) - 1
        self._index_by_storage[key] = index
        self._storage_refs[key] = weakref.ref(storage, partial(self._on_free, key))
        self._log(MALLOC, index)
        if func in _COPIES:
            self._note_copy(index, args[:1])

    def _log(self, kind: str, index: int) -> None:
        block = self.blocks[index]
        self.events.append(Event(kind, index, block.num_bytes, block.tier, self._phase))

    def _on_free(self, key: int, _: Any) -> None:
        self._storage_refs.pop(key, None)
        index = self._index_by_storage.pop(key, None)
        if index is None:
            return
        if self._accumulation and self._accumulation[0] == index and self._is_last(self._accumulation[1]):
            self._undo_out_of_place(index, self._accumulation[1])
        else:
            self._log(FREE, index)
        self._accumulation = None

    def _note_copy(self, index: int, sources: Any) -> None:
        """A device block filled from the host is a saved activation on its way back."""
        block = self.blocks[index]
        if block.tier == DEVICE and block.category is None and sources:
            source = self._index_by_storage.get(sources[0].untyped_storage()._cdata)
            if source is not None and self.blocks[source].tier == HOST:
                block.category = "saved_activations"

    def _mark_gradients(self) -> None:
        for place, ref in enumerate(self._parameters):
            parameter = ref()
            if parameter is not None and parameter.grad is not None:
                index = self._index_by_storage.get(parameter.grad.untyped_storage()._cdata)
                if index is not None:
                    self.blocks[index].category = "gradients"
                    self.gradient_blocks[place] = index

    # -- recomputation: inside backward, autograd records only while a region runs again. It ---
    #    ends at the first allocation of backward proper; views made without grad mode do not count.

    def _follow_recompute(self) -> None:
        if torch.is_grad_enabled():
            if not self._is_recomputing:
                self._is_recomputing = True
                self._num_recomputes += 1
        else:
            self._end_recompute()

    def _end_recompute(self) -> None:
        if self._is_recomputing:
            self._is_recomputing = False
            self.recompute_ends[self._num_recomputes] = len(self.events)

    # -- accumulation: under any dispatch mode autograd adds gradients out of place, where it ---
    #    adds in place without one. `a + b` in backward with `a` no view and gone right after is
    #    that case: the log then says that `a` lived on and nothing was allocated.
    #    Source: `accumulate` in torch/csrc/autograd/input_buffer.cpp.

    def _accumulation_of(self, args: Any) -> tuple[int, int] | None:
        left, right = args[:2]
        if not (isinstance(right, torch.Tensor) and left.shape == right.shape and left.dtype == right.dtype):
            return None
        if left._is_view() or not left.is_contiguous():
            return None
        index = self._index_by_storage.get(left.untyped_storage()._cdata)
        return None if index is None else (index, -1)

    def _accumulation_seen(self) -> tuple[int, int] | None:
        assert self._accumulation is not None
        if self._accumulation[1] >= 0 or not self.events or self.events[-1].kind != MALLOC:
            return None
        return self._accumulation[0], self.events[-1].block

    def _is_last(self, block: int) -> bool:
        return self.events[-1].kind == MALLOC and self.events[-1].block == block

    def _undo_out_of_place(self, kept: int, dropped: int) -> None:
        self.events.pop()
        self.blocks.pop()
        newest = next(reversed(self._index_by_storage))
        assert self._index_by_storage[newest] == dropped
        self._index_by_storage[newest] = kept


def _shares_input(key: int, args: Any) -> bool:
    """Whether an output's storage is that of a tensor that existed before the mode saw it."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg.untyped_storage()._cdata == key:
                return True
        elif isinstance(arg, (list, tuple)) and _shares_input(key, arg):
            return True
    return False
