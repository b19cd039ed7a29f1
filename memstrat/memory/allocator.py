"""A model of PyTorch's CUDA caching allocator: what is allocated and reserved for a log of storages.

One device, one stream, default settings otherwise (no expandable segments, no maximum split size,
no garbage collection threshold). Addresses are made up: `segment_order` says how new segments
compare with older ones, which decides ties between free blocks of one size and therefore how far
memory fragments. Does not cover what the driver and the CUDA context hold.

Source of rules and constants: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.6 to 2.13
(`round_size`, `get_allocation_size`, `get_free_block`, `should_split`, `free_block`,
`try_merge_blocks`, `release_cached_blocks`).
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from memstrat.memory.profile import DEVICE, FREE, MALLOC, PHASE_START, Event
from memstrat.units import MIB

SegmentOrder = Literal["ascending", "descending", "shuffled"]


@dataclass(frozen=True)
class AllocatorSettings:
    """Sizes in bytes. Defaults are the constants of CUDACachingAllocator.cpp, named beside each."""

    min_block_bytes: int = 512
    """kMinBlockSize: every size is rounded up to a multiple of this."""
    small_size_bytes: int = MIB
    """kSmallSize: up to here a block comes from the small pool."""
    small_segment_bytes: int = 2 * MIB
    """kSmallBuffer: the small pool grows by segments of this size."""
    min_large_bytes: int = 10 * MIB
    """kMinLargeAlloc: below this the large pool grows by `large_segment_bytes`."""
    large_segment_bytes: int = 20 * MIB
    """kLargeBuffer."""
    round_large_bytes: int = 2 * MIB
    """kRoundLarge: larger segments are rounded up to a multiple of this."""
    segment_order: SegmentOrder = "ascending"
    """Addresses of new segments. The driver promises none; `shuffled` draws them from `seed`."""
    seed: int = 0


class _Block:
    """A piece of a segment; `previous` and `next` are its neighbours in the same segment."""

    __slots__ = ("address", "size", "is_small", "is_allocated", "previous", "next")

    def __init__(self, address: int, size: int, is_small: bool):
        self.address, self.size, self.is_small = address, size, is_small
        self.is_allocated = False
        self.previous: _Block | None = None
        self.next: _Block | None = None


class CachingAllocator:
    """Hand out and take back blocks as PyTorch's allocator would.

    Args:
        capacity_bytes: what the device can give to segments; None for no limit.
        settings: sizes and segment order.
    """

    def __init__(self, capacity_bytes: int | None = None, settings: AllocatorSettings | None = None):
        self.capacity_bytes = capacity_bytes
        self.settings = settings or AllocatorSettings()
        self.allocated_bytes = self.reserved_bytes = 0
        self.peak_allocated_bytes = self.peak_reserved_bytes = 0
        self.num_retries = self.num_ooms = 0
        self._by_position: dict[bool, dict[int, _Block]] = {True: {}, False: {}}
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._num_segments = 0
        self._random = random.Random(self.settings.seed)

    def reset_peaks(self) -> None:
        """Start both peaks again from what is held now, as `reset_peak_memory_stats` does."""
        self.peak_allocated_bytes, self.peak_reserved_bytes = self.allocated_bytes, self.reserved_bytes

    def malloc(self, num_bytes: int) -> _Block | None:
        """A block of at least `num_bytes`; None if the device is full even without the cache."""
        settings = self.settings
        size = max(1, -(-num_bytes // settings.min_block_bytes)) * settings.min_block_bytes
        is_small = size <= settings.small_size_bytes
        block = self._best_fit(size, is_small) or self._new_segment(size, is_small)
        if block is None:
            self.num_ooms += 1
            return None
        remaining = block.size - size
        if remaining >= settings.min_block_bytes if is_small else remaining > settings.small_size_bytes:
            self._split(block, size)
        block.is_allocated = True
        self.allocated_bytes += block.size
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: _Block) -> None:
        """Take a block back and merge it with free neighbours of its segment."""
        self.allocated_bytes -= block.size
        block.is_allocated = False
        for neighbour in (block.previous, block.next):
            if neighbour is not None and not neighbour.is_allocated:
                self._remove_free(neighbour)
                self._merge(block, neighbour)
        self._add_free(block)

    def empty_cache(self) -> None:
        """Give every wholly free segment back to the device."""
        for is_small in (True, False):
            for block in list(self._by_position[is_small].values()):
                if block.previous is None and block.next is None:
                    self._remove_free(block)
                    self.reserved_bytes -= block.size

    # -- inside -----------------------------------------------------------------------------

    def _best_fit(self, size: int, is_small: bool) -> _Block | None:
        """The smallest free block that fits; of equal ones the lowest address."""
        free = self._free[is_small]
        position = bisect_left(free, (size, -1))
        if position == len(free):
            return None
        _, address = free.pop(position)
        return self._by_position[is_small].pop(address)

    def _new_segment(self, size: int, is_small: bool) -> _Block | None:
        settings = self.settings
        if is_small:
            segment = settings.small_segment_bytes
        elif size < settings.min_large_bytes:
            segment = settings.large_segment_bytes
        else:
            segment = -(-size // settings.round_large_bytes) * settings.round_large_bytes
        if not self._has_room(segment):
            self.num_retries += 1
            self.empty_cache()
            if not self._has_room(segment):
                return None
        self.reserved_bytes += segment
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return _Block(self._next_address(), segment, is_small)

    def _has_room(self, segment_bytes: int) -> bool:
        return self.capacity_bytes is None or self.reserved_bytes + segment_bytes <= self.capacity_bytes

    def _next_address(self) -> int:
        self._num_segments += 1
        slot = {"ascending": self._num_segments, "descending": 2**20 - self._num_segments,
                "shuffled": self._random.randrange(2**20)}[self.settings.segment_order]
        # Segments lie 2**42 bytes apart, so they never touch; the count keeps addresses unique.
        return (slot << 62) + (self._num_segments << 42)

    def _split(self, block: _Block, size: int) -> None:
        rest = _Block(block.address + size, block.size - size, block.is_small)
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size = rest, size
        self._add_free(rest)

    def _merge(self, block: _Block, neighbour: _Block) -> None:
        if neighbour is block.previous:
            block.address, block.previous = neighbour.address, neighbour.previous
            if block.previous is not None:
                block.previous.next = block
        else:
            block.next = neighbour.next
            if block.next is not None:
                block.next.previous = block
        block.size += neighbour.size

    def _add_free(self, block: _Block) -> None:
        insort(self._free[block.is_small], (block.size, block.address))
        self._by_position[block.is_small][block.address] = block

    def _remove_free(self, block: _Block) -> None:
        free = self._free[block.is_small]
        del free[bisect_left(free, (block.size, block.address))]
        del self._by_position[block.is_small][block.address]


@dataclass
class Replay:
    """What the allocator did with a log. Peaks by phase are taken over that phase's events alone."""

    peak_allocated_bytes: int = 0
    peak_reserved_bytes: int = 0
    phase_peak_allocated_bytes: dict[str, int] = field(default_factory=dict)
    block_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes each block of the log took, rounding included."""
    num_retries: int = 0
    out_of_memory_at: int | None = None
    """Position of the event that found no room, even with the cache freed; None if all fitted."""


def replay_events(events: Iterable[Event], allocator: CachingAllocator,
                  blocks: dict[int, _Block] | None = None) -> Replay:
    """Run the device part of a log through an allocator, up to the first failure.

    Args:
        events: the log of `LiveBytes`; host blocks and markers are skipped.
        allocator: where to allocate; it keeps its state, so that logs can follow one another.
        blocks: blocks held from an earlier log under the same numbers.
    """
    held = {} if blocks is None else blocks
    replay = Replay()
    phases = replay.phase_peak_allocated_bytes
    retries_before = allocator.num_retries
    for position, event in enumerate(events):
        if event.kind == PHASE_START:
            # A phase that allocates nothing peaks at what it finds.
            phases[event.phase] = max(phases.get(event.phase, 0), allocator.allocated_bytes)
        if event.tier != DEVICE:
            continue
        if event.kind == MALLOC:
            block = allocator.malloc(event.num_bytes)
            if block is None:
                replay.out_of_memory_at = position
                break
            held[event.block] = block
            replay.block_bytes[event.block] = block.size
        elif event.kind == FREE and event.block in held:
            allocator.free(held.pop(event.block))
        now = allocator.allocated_bytes
        replay.peak_allocated_bytes = max(replay.peak_allocated_bytes, now)
        replay.peak_reserved_bytes = max(replay.peak_reserved_bytes, allocator.reserved_bytes)
        phases[event.phase] = max(phases.get(event.phase, 0), now)
    replay.num_retries = allocator.num_retries - retries_before
    return replay
