"""From a trace to peaks: replay it through the allocator, several times where the answer is open.

Peak allocated follows from the trace. Peak reserved also depends on where the driver puts new
segments, which nobody promises, so it is a range over named variants. Does not cover memory that is
not the allocator's (`Device.other_use_bytes` states what is assumed of that).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from memstrat.estimate.devices import Device
from memstrat.estimate.trace import Trace
from memstrat.memory.allocator import AllocatorSettings, CachingAllocator, replay_events
from memstrat.memory.profile import MemoryProfile, build_profile

PHASES = ("forward", "backward", "optimizer")
MAX_STEPS = 7
"""Steps replayed at most: two of warm-up and five timed ones, the presets' counts. A step that ends
as the one before it did is the last."""

VARIANTS: dict[str, AllocatorSettings] = {
    "ascending addresses": AllocatorSettings(segment_order="ascending"),
    "descending addresses": AllocatorSettings(segment_order="descending"),
    "shuffled addresses 1": AllocatorSettings(segment_order="shuffled", seed=1),
    "shuffled addresses 2": AllocatorSettings(segment_order="shuffled", seed=2),
}


@dataclass
class SteadyState:
    """The highest step once steps repeat themselves, all of it from that one step. Bytes."""

    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    phase_peak_bytes: dict[str, int] = field(default_factory=dict)
    eval_peak_bytes: int | None = None
    block_bytes: dict[int, int] = field(default_factory=dict)
    num_retries: int = 0
    out_of_memory: str | None = None
    """Where it ran out: `step 1, backward`; None if all steps found room."""


@dataclass
class Prediction:
    """Peaks of one strategy, in bytes."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int | None
    """Of the first variant; None on a CPU, which has no caching allocator."""
    reserved_by_variant: dict[str, int]
    phase_peak_bytes: dict[str, int]
    eval_peak_bytes: int | None
    profile: MemoryProfile
    fits: bool | None
    """None where no capacity was asked about; False if any variant ran out."""
    out_of_memory: str | None
    num_retries: int


def predict(trace: Trace, device: Device, variants: dict[str, AllocatorSettings] | None = None) -> Prediction:
    """Replay a trace on a device under each variant.

    Args:
        trace: of `trace_strategy`, two steps long.
        device: its `free_bytes` is the capacity; None for no limit.
        variants: instead of the four of `VARIANTS`; the first gives the figures that are not ranges.
    """
    states = {name: replay_steps(trace, CachingAllocator(device.free_bytes, settings))
              for name, settings in (variants or VARIANTS).items()}
    first = next(iter(states.values()))
    failures = [f"{state.out_of_memory} ({name})" for name, state in states.items() if state.out_of_memory]
    if first.out_of_memory:
        # The peaks asked for are those the step needs, so they come from a device without a limit.
        first = replay_steps(trace, CachingAllocator(None, next(iter((variants or VARIANTS).values()))))
    profile = build_profile(trace.blocks, trace.events, trace.recompute_ends, lambda block: first.block_bytes[block],
                            start=trace.ends["first"], end=trace.ends["second"])
    reserved = {name: state.peak_reserved_bytes for name, state in states.items() if not state.out_of_memory}
    return Prediction(
        peak_allocated_bytes=first.peak_allocated_bytes,
        peak_reserved_bytes=next(iter(reserved.values()), first.peak_reserved_bytes),
        reserved_by_variant=reserved, phase_peak_bytes={name: first.phase_peak_bytes[name] for name in PHASES},
        eval_peak_bytes=first.eval_peak_bytes, profile=profile,
        fits=None if device.free_bytes is None else not failures,
        out_of_memory=failures[0] if failures else None,
        num_retries=max(state.num_retries for state in states.values()))


def predict_live(trace: Trace) -> Prediction:
    """The CPU rehearsal's figures: bytes of live tensors, no allocator, nothing rounded."""
    ends = trace.ends
    profile = build_profile(trace.blocks, trace.events, trace.recompute_ends, start=ends["first"], end=ends["second"])
    eval_profile = build_profile(trace.blocks, trace.events, trace.recompute_ends, start=ends["second"])
    return Prediction(
        peak_allocated_bytes=profile.peak_device_bytes, peak_reserved_bytes=None, reserved_by_variant={},
        phase_peak_bytes={name: profile.phases[name].peak_device_bytes for name in PHASES},
        eval_peak_bytes=eval_profile.peak_device_bytes if ends["eval"] > ends["second"] else None,
        profile=profile, fits=None, out_of_memory=None, num_retries=0)


def replay_steps(trace: Trace, allocator: CachingAllocator) -> SteadyState:
    """The first step once, the second again and again; peaks from the third step on."""
    state, held, sizes, ends = SteadyState(), {}, {}, trace.ends

    def play(start: int, end: int, where: str) -> dict[str, int] | None:
        allocator.reset_peaks()
        replay = replay_events(trace.events[start:end], allocator, held)
        sizes.update(replay.block_bytes)
        state.num_retries += replay.num_retries
        if replay.out_of_memory_at is not None:
            phase = trace.events[start + replay.out_of_memory_at].phase or "setup"
            state.out_of_memory = f"{where}, {phase}"
            return None
        return replay.phase_peak_allocated_bytes

    if play(0, ends["first"], "step 1") is None:
        return state
    before: tuple[int, ...] = ()
    for number in range(2, MAX_STEPS + 1):
        phases = play(ends["first"], ends["second"], f"step {number}")
        if phases is None:
            return state
        for earlier, later in trace.carried:
            held[earlier] = held.pop(later)
        now = (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes, allocator.reserved_bytes)
        if number >= 3:
            state.peak_reserved_bytes = max(state.peak_reserved_bytes, allocator.peak_reserved_bytes)
            if allocator.peak_allocated_bytes > state.peak_allocated_bytes:
                state.peak_allocated_bytes = allocator.peak_allocated_bytes
                state.phase_peak_bytes, state.block_bytes = phases, dict(sizes)
            if now == before:
                break
        before = now
    if ends["eval"] > ends["second"]:
        phases = play(ends["second"], ends["eval"], "evaluation")
        state.eval_peak_bytes = phases and phases.get("eval")
        state.out_of_memory = None  # an evaluation that does not fit is no step that does not fit
    return state
