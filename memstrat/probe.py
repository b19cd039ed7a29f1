"""Untimed steps for evidence: what the strategy did, and the peak of each phase.

Peaks come from the allocator on CUDA, and on a CPU from counting live tensors, device and host
apart, as if the CPU were the device. Does not judge what it sees (see `paths`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from memstrat.memory import LiveBytes
from memstrat.records import PathEvidence, PhaseMemory
from memstrat.saved_tensors import PathObserver, Watcher, watch_saved_tensors
from memstrat.training_step import TrainingStep


def observe_path(step: TrainingStep) -> tuple[PathEvidence, list[str], int]:
    """One watched step: what the strategy did, attention operators seen, and bytes it held on the host."""
    vocab_size = step.model.config.get_text_config().vocab_size
    observer, attention = PathObserver(step.model, vocab_size), _AttentionOperators()
    step.optimizer.zero_grad(set_to_none=True)
    with observer, attention:
        with step.strategy.step_context(step.model):
            observer.look_for_foreign_hooks()
            loss = step.loss_of(step.train_ids)
        observer.start_backward()
        step.backward(loss)
    step.optimizer.step()
    return observer.evidence(), sorted(attention.seen), observer.peak_host_bytes


def observe_memory(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    """One untimed step: peaks by phase, and bytes alive after forward. Needs an optimizer with its state."""
    return _allocator_phases(step) if step.train_ids.device.type == "cuda" else _live_phases(step)


class _AttentionOperators(TorchDispatchMode):
    """Names of the attention operators that ran. The math kernel shows by its softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if "scaled_dot_product" in name or name == "_safe_softmax":
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


class _HostTier(Watcher):
    """Counts what pack hooks allocate to the host tier."""

    def __init__(self, live: LiveBytes):
        self.host = live.host


def _live_phases(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    live = LiveBytes(step.train_ids.device.type, step.model.config.get_text_config().vocab_size)
    step.optimizer.zero_grad(set_to_none=True)
    live.register(step.model.parameters(), "parameters")
    live.register(step.model.buffers(), "other_temporaries")
    live.register([step.train_ids], "other_temporaries")
    for state in step.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                with live.host() if name == "step" else nullcontext():  # CUDA keeps the counters on the host
                    live.register([value], "optimizer_state")
    with live, watch_saved_tensors(_HostTier(live)):
        with live.phase("forward"):
            loss = step.forward()
        with live.phase("backward"):
            step.backward(loss)
        with live.phase("optimizer"):
            step.optimizer.step()
    phases = {name: PhaseMemory(peak_allocated_bytes=phase.peak_device_bytes, host_peak_bytes=phase.peak_host_bytes,
                                categories_at_peak=phase.categories_at_peak)
              for name, phase in live.phases.items()}
    return phases, live.resident_after_forward_bytes


def _allocator_phases(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    device, phases = step.train_ids.device, {}
    step.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield
        torch.cuda.synchronize(device)
        phases[name] = PhaseMemory(peak_allocated_bytes=torch.cuda.max_memory_allocated(device))

    with phase("forward"):
        loss = step.forward()
    resident_bytes = torch.cuda.memory_allocated(device)
    with phase("backward"):
        step.backward(loss)
    with phase("optimizer"):
        step.optimizer.step()
    return phases, resident_bytes
