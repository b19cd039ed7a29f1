from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest

from memstrat import host_memory
from memstrat.host_memory import available_ram_bytes, cgroup_limits, total_ram_bytes

GIB = 2**30


@pytest.fixture
def groups(tmp_path):
    """Write the files of control groups below a root; returns (root, membership file)."""
    def write(membership: str, files: dict[str, object]):
        (tmp_path / "membership").write_text(membership)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
        return tmp_path / "cgroup", tmp_path / "membership"
    return write


def test_version_2_counts_what_cannot_be_reclaimed(groups):
    where = groups("0::/\n", {"memory.max": 4 * GIB, "memory.current": 3 * GIB,
                              "memory.stat": f"anon 7\ninactive_file {GIB}\nactive_file 9"})
    assert cgroup_limits(*where) == [(4 * GIB, 2 * GIB)]


def test_every_group_up_to_the_root_counts(groups):
    where = groups("0::/user/job\n", {
        "user/job/memory.max": "max", "user/job/memory.current": 1, "user/job/memory.stat": "",
        "user/memory.max": 2 * GIB, "user/memory.current": GIB, "user/memory.stat": ""})
    assert cgroup_limits(*where) == [(2 * GIB, GIB)]


def test_version_1_is_read_in_its_own_names(groups):
    where = groups("5:cpu:/other\n4:memory:/docker/abc\n", {
        "memory/memory.limit_in_bytes": GIB, "memory/memory.usage_in_bytes": 100,
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 30"})
    assert cgroup_limits(*where) == [(GIB, 70)]


def test_no_limit_is_no_limit(groups):
    where = groups("4:memory:/\n", {"memory/memory.limit_in_bytes": 9223372036854771712,
                                    "memory/memory.usage_in_bytes": 100, "memory/memory.stat": ""})
    assert cgroup_limits(*where) == []


def test_a_machine_without_control_groups_has_no_limits(tmp_path):
    assert cgroup_limits(tmp_path, tmp_path / "absent") == []


@pytest.mark.parametrize(("limits", "total", "available"), [
    ([], 16 * GIB, 10 * GIB),
    ([(4 * GIB, 3 * GIB)], 4 * GIB, GIB),
    ([(64 * GIB, GIB)], 16 * GIB, 10 * GIB),
    ([(4 * GIB, 5 * GIB), (8 * GIB, 0)], 4 * GIB, 0),
])
def test_ram_is_the_machines_or_what_the_tightest_limit_leaves(monkeypatch, limits, total, available):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=16 * GIB, available=10 * GIB))
    monkeypatch.setattr(host_memory, "cgroup_limits", lambda: limits)
    assert (total_ram_bytes(), available_ram_bytes()) == (total, available)
