"""RAM as this process may use it: the machine's, or what its container's limit leaves of it.

Source: Linux kernel documentation, cgroup-v2 (memory.max, memory.current, memory.stat) and
cgroup-v1 memory controller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
UNLIMITED_BYTES = 2**60  # version 1 writes "no limit" as a number larger than any memory


def total_ram_bytes() -> int:
    """Bytes of RAM of the machine, or the container's limit if that is less."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in cgroup_limits())])


def available_ram_bytes() -> int:
    """Bytes a process could take now without swapping or passing the container's limit."""
    return min([psutil.virtual_memory().available, *(max(0, limit - used) for limit, used in cgroup_limits())])


def cgroup_limits(root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> list[tuple[int, int]]:
    """(limit, bytes in use that cannot be reclaimed) of every limited group this process is in."""
    limits = []
    for folder, limit_name, used_name, cache_name in _groups(root, membership):
        try:
            limit, used = (folder / limit_name).read_text().strip(), int((folder / used_name).read_text())
            statistics = (folder / "memory.stat").read_text()
        except (OSError, ValueError):
            continue  # a container sees its own group only, as the root
        if limit.isdigit() and int(limit) < UNLIMITED_BYTES:
            cache = re.search(rf"^{cache_name} (\d+)$", statistics, re.MULTILINE)
            limits.append((int(limit), max(0, used - (int(cache.group(1)) if cache else 0))))
    return limits


def _groups(root: Path, membership: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Each memory group, from the process's own up to the root: folder, names of limit, use and page cache."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, names = root, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            base = root / "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        relative = Path(path.lstrip("/"))
        for folder in dict.fromkeys((relative, *relative.parents)):
            yield (base / folder, *names)
