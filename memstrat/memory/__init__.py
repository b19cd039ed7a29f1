"""Memory of one training step: live bytes by category and phase, and the caching-allocator model.

* `tracker`: `LiveBytes`, a dispatch mode that logs when storages appear and vanish.
* `profile`: what that log says: peaks, phases, categories, timeline.
* `allocator`: the CUDA caching allocator, replayed on such a log.

Does not cover what the driver, the CUDA context or kernels outside the allocator hold.
"""

from memstrat.memory.allocator import AllocatorSettings, CachingAllocator, Replay, replay_events
from memstrat.memory.profile import CATEGORIES, Event, MemoryProfile, PhaseProfile, TimelinePoint
from memstrat.memory.tracker import LiveBytes

__all__ = ["CATEGORIES", "AllocatorSettings", "CachingAllocator", "Event", "LiveBytes", "MemoryProfile",
           "PhaseProfile", "Replay", "TimelinePoint", "replay_events"]
