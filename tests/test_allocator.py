"""The caching-allocator model against traces worked out by hand."""

from __future__ import annotations

import pytest

from memstrat.memory import AllocatorSettings, CachingAllocator, Event, replay_events

KIB, MIB = 2**10, 2**20


def event(kind: str, block: int, num_bytes: int = 0, tier: str = "device", phase: str = "forward") -> Event:
    return Event(kind, block, num_bytes, tier, phase)


@pytest.mark.parametrize(("asked", "allocated", "reserved"), [
    (1, 512, 2 * MIB),
    (513, 1024, 2 * MIB),
    (MIB, MIB, 2 * MIB),                        # the last size of the small pool
    (MIB + 1, MIB + 512, 20 * MIB),             # the first of the large pool
    (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
    (10 * MIB, 10 * MIB, 10 * MIB),             # from here each has a segment of its own
    (11 * MIB, 12 * MIB, 12 * MIB),             # the rest of 1 MiB is too small to split off
    (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),
    (519 * MIB, 520 * MIB, 520 * MIB),
])
def test_allocator_rounds_a_first_request(asked, allocated, reserved):
    allocator = CachingAllocator()
    allocator.malloc(asked)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (allocated, reserved)


def test_allocator_splits_a_small_segment_and_merges_it_again():
    allocator = CachingAllocator()
    blocks = [allocator.malloc(512 * KIB) for _ in range(4)]
    assert allocator.reserved_bytes == 2 * MIB
    for block in (blocks[0], blocks[2], blocks[1]):     # the middle one joins both sides
        allocator.free(block)
    assert allocator.malloc(MIB).size == MIB            # fits into the merged 1.5 MiB
    assert allocator.reserved_bytes == 2 * MIB


def test_allocator_takes_the_smallest_block_that_fits():
    allocator = CachingAllocator()
    wide, narrow = allocator.malloc(64 * MIB), allocator.malloc(32 * MIB)
    address = narrow.address
    allocator.free(wide)
    allocator.free(narrow)
    assert allocator.malloc(30 * MIB).address == address
    assert allocator.reserved_bytes == 96 * MIB


def test_allocator_keeps_a_large_rest_of_at_most_one_mib_with_its_block():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(32 * MIB))
    assert allocator.malloc(31 * MIB).size == 32 * MIB


def test_allocator_splits_off_a_large_rest_above_one_mib():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(32 * MIB))
    assert allocator.malloc(30 * MIB).size == 30 * MIB
    assert allocator.malloc(2 * MIB).size == 2 * MIB
    assert allocator.reserved_bytes == 32 * MIB


def test_allocator_never_mixes_the_pools():
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(64 * MIB))
    allocator.malloc(4 * KIB)
    assert allocator.reserved_bytes == 66 * MIB


def test_allocator_frees_its_cache_and_tries_again_at_capacity():
    allocator = CachingAllocator(capacity_bytes=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    kept = allocator.malloc(20 * MIB)                   # carved from the cached 60
    assert allocator.reserved_bytes == 60 * MIB
    allocator.free(allocator.malloc(36 * MIB))          # from the rest of 40
    other = allocator.malloc(40 * MIB)                  # exactly that rest again
    assert (allocator.reserved_bytes, allocator.num_retries) == (60 * MIB, 0)
    allocator.free(other)
    allocator.free(kept)
    assert allocator.malloc(80 * MIB).size == 80 * MIB
    assert (allocator.reserved_bytes, allocator.num_retries) == (80 * MIB, 1)
    assert allocator.peak_reserved_bytes == 80 * MIB


def test_allocator_cannot_free_a_segment_that_is_partly_in_use():
    allocator = CachingAllocator(capacity_bytes=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(20 * MIB)
    assert allocator.malloc(50 * MIB) is None
    assert (allocator.num_retries, allocator.num_ooms) == (1, 1)
    assert allocator.reserved_bytes == 60 * MIB


@pytest.mark.parametrize(("order", "expected_first"), [("ascending", 0), ("descending", 1)])
def test_allocator_breaks_ties_by_segment_address(order, expected_first):
    allocator = CachingAllocator(settings=AllocatorSettings(segment_order=order))
    pair = [allocator.malloc(32 * MIB), allocator.malloc(32 * MIB)]
    addresses = [block.address for block in pair]
    for block in pair:
        allocator.free(block)
    assert allocator.malloc(32 * MIB).address == addresses[expected_first]


def test_allocator_resets_peaks_to_what_is_held():
    allocator = CachingAllocator()
    allocator.malloc(512)
    allocator.free(allocator.malloc(64 * MIB))
    allocator.reset_peaks()
    assert (allocator.peak_allocated_bytes, allocator.peak_reserved_bytes) == (512, 66 * MIB)


def test_replay_reports_peaks_by_phase_and_skips_the_host():
    events = [event("malloc", 0, 30 * MIB), event("malloc", 1, 7 * MIB, tier="host"),
              event("free", 0), event("malloc", 2, 24 * MIB, phase="backward")]
    replay = replay_events(events, CachingAllocator())
    assert replay.phase_peak_allocated_bytes == {"forward": 30 * MIB, "backward": 24 * MIB}
    assert (replay.peak_allocated_bytes, replay.peak_reserved_bytes) == (30 * MIB, 30 * MIB)
    assert replay.block_bytes == {0: 30 * MIB, 2: 24 * MIB}
    assert replay.out_of_memory_at is None


def test_replay_gives_a_phase_without_allocations_what_it_finds():
    events = [event("malloc", 0, 30 * MIB), event("phase_start", -1, tier="", phase="optimizer"),
              event("phase_end", -1, tier="", phase="optimizer")]
    assert replay_events(events, CachingAllocator()).phase_peak_allocated_bytes["optimizer"] == 30 * MIB


def test_replay_stops_at_the_event_that_finds_no_room():
    events = [event("malloc", 0, 30 * MIB), event("malloc", 1, 30 * MIB)]
    replay = replay_events(events, CachingAllocator(capacity_bytes=40 * MIB))
    assert (replay.out_of_memory_at, replay.num_retries) == (1, 1)


def test_replay_follows_an_earlier_log_with_its_blocks():
    allocator, held = CachingAllocator(), {}
    replay_events([event("malloc", 0, 30 * MIB)], allocator, held)
    replay = replay_events([event("free", 0), event("malloc", 1, 30 * MIB)], allocator, held)
    assert replay.peak_reserved_bytes == 30 * MIB
    assert allocator.allocated_bytes == 30 * MIB
