"""What a log of storages says: peaks per phase, the split by category, the timeline of a step.

Pure bookkeeping over `Block` and `Event`; it neither needs tensors nor knows where the log comes
from. A storage's category is decided by its fate, so it is known only once the step is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CATEGORIES = ("parameters", "gradients", "optimizer_state", "optimizer_temporaries",
              "saved_activations", "logits_and_loss", "other_temporaries")
DEVICE, HOST = "device", "host"
MALLOC, FREE, PHASE_START, PHASE_END = "malloc", "free", "phase_start", "phase_end"


class Event(NamedTuple):
    """One entry of the log. `block` is an index into the blocks, -1 for a phase marker."""

    kind: str
    block: int
    num_bytes: int
    tier: str
    phase: str


@dataclass(slots=True)
class Block:
    """One storage: its size, where it lives, and what was seen at its birth."""

    num_bytes: int
    tier: str
    phase: str
    category: str | None = None
    is_logits: bool = False
    recompute: int = 0
    """Number of the recomputation it was born in, 0 outside of one."""


class TimelinePoint(NamedTuple):
    """Live bytes just after one event; `categories` splits the device's."""

    phase: str
    device_bytes: int
    host_bytes: int
    categories: tuple[int, ...]


@dataclass
class PhaseProfile:
    """Highest live bytes inside one phase, and what they were made of."""

    peak_device_bytes: int = 0
    peak_host_bytes: int = 0
    categories_at_peak: dict[str, int] = field(default_factory=dict)


@dataclass
class MemoryProfile:
    """Live bytes of a step, or of several: phases of one name are merged into their maximum."""

    phases: dict[str, PhaseProfile]
    peak_device_bytes: int
    peak_host_bytes: int
    categories_at_peak: dict[str, int]
    resident_after_forward_bytes: int
    timeline: list[TimelinePoint]
    block_categories: list[str]


def categorize_blocks(blocks: Sequence[Block], events: Sequence[Event],
                      recompute_ends: dict[int, int]) -> list[str]:
    """The category of every block, decided by where it was born and when it died.

    A forward tensor that outlives the forward phase is a saved activation, one that does not is a
    temporary; the same holds for a recomputation inside backward (`recompute_ends`: number of the
    recomputation -> position in the log where it ended).
    """
    never = len(events)
    death = [never] * len(blocks)
    birth = [0] * len(blocks)
    phase_end_after: list[int] = [never] * (len(events) + 1)
    for position in range(len(events) - 1, -1, -1):
        event = events[position]
        phase_end_after[position] = position if event.kind == PHASE_END else phase_end_after[position + 1]
        if event.kind == FREE:
            death[event.block] = position
        elif event.kind == MALLOC:
            birth[event.block] = position

    def category(index: int, block: Block) -> str:
        if block.category is not None:
            return block.category
        if block.is_logits:
            return "logits_and_loss"
        if block.phase == "optimizer":
            return "optimizer_state" if death[index] == never else "optimizer_temporaries"
        if block.phase == "forward":
            outlives = death[index] > phase_end_after[birth[index]]
            return "saved_activations" if outlives else "other_temporaries"
        if block.recompute and death[index] > recompute_ends.get(block.recompute, never):
            return "saved_activations"
        return "other_temporaries"

    return [category(index, block) for index, block in enumerate(blocks)]


def build_profile(blocks: Sequence[Block], events: Sequence[Event], recompute_ends: dict[int, int],
                  size_of: Callable[[int], int] | None = None, start: int = 0,
                  end: int | None = None) -> MemoryProfile:
    """Replay the log and keep the highest points.

    Args:
        blocks: every storage of the log.
        events: the log, in order.
        recompute_ends: see `categorize_blocks`.
        size_of: bytes a device block counts for, given its index; the storage's own bytes unless given
            (an allocator rounds them up).
        start, end: positions in the log; peaks and timeline cover only what lies between.
    """
    names = categorize_blocks(blocks, events, recompute_ends)
    slot = {name: position for position, name in enumerate(CATEGORIES)}
    extra = len(CATEGORIES)
    split = [0] * (extra + 1)
    device = host = resident = 0
    phases: dict[str, PhaseProfile] = {}
    overall = PhaseProfile()
    timeline: list[TimelinePoint] = []

    def note(profile: PhaseProfile) -> None:
        profile.peak_host_bytes = max(profile.peak_host_bytes, host)
        if device > profile.peak_device_bytes:
            profile.peak_device_bytes = device
            profile.categories_at_peak = _as_dict(split)

    for position, event in enumerate(events[:end]):
        if event.kind == PHASE_START:
            if position >= start:
                phases.setdefault(event.phase, PhaseProfile())
        elif event.kind == PHASE_END:
            if event.phase == "forward":
                resident = device
            continue
        else:
            sign = 1 if event.kind == MALLOC else -1
            if event.tier == HOST:
                host += sign * event.num_bytes
            else:
                size = sign * (event.num_bytes if size_of is None else size_of(event.block))
                device += size
                split[slot.get(names[event.block], extra)] += size
        if position < start:
            continue
        note(overall)
        if event.phase in phases:
            note(phases[event.phase])
        timeline.append(TimelinePoint(event.phase, device, host, tuple(split[:extra])))
    return MemoryProfile(phases, overall.peak_device_bytes, overall.peak_host_bytes,
                         overall.categories_at_peak, resident, timeline, names)


def _as_dict(split: Sequence[int]) -> dict[str, int]:
    """Bytes by category. What was registered under another name (inputs) counts as temporaries."""
    named = dict(zip(CATEGORIES, split, strict=False))
    named["other_temporaries"] += split[len(CATEGORIES)]
    return named
