from __future__ import annotations

import pytest

from memstrat.paths import CORE_PATH_RULES
from memstrat.records import PathEvidence


def make_path(**overrides) -> PathEvidence:
    values = dict(num_regions=4, num_recomputed_regions=0, num_packed=0, num_unpacked=0, packed_bytes=0,
                  unpacked_bytes=0, packed_bytes_by_kind={}, num_packed_inside_regions=0, num_region_inputs_packed=0)
    return PathEvidence(**(values | overrides))


GOOD = {
    "baseline": {},
    "checkpoint": {"num_recomputed_regions": 4},
    "offload": {"num_packed": 90, "num_unpacked": 90, "num_packed_inside_regions": 80},
    "hybrid": {"num_recomputed_regions": 4, "num_packed": 9, "num_unpacked": 9, "num_region_inputs_packed": 4},
}
BAD = [
    ("baseline", {"num_recomputed_regions": 1}), ("baseline", {"num_packed": 1, "num_unpacked": 1}),
    ("checkpoint", {"num_recomputed_regions": 3}), ("checkpoint", {"num_regions": 0, "num_recomputed_regions": 0}),
    ("checkpoint", {"num_recomputed_regions": 4, "num_packed": 1}),
    ("offload", {}), ("offload", {"num_packed": 90, "num_unpacked": 89}),
    ("offload", {"num_packed": 90, "num_unpacked": 90, "num_recomputed_regions": 4}),
    ("hybrid", {"num_recomputed_regions": 4}),
    ("hybrid", GOOD["hybrid"] | {"num_recomputed_regions": 0}),
    ("hybrid", GOOD["hybrid"] | {"num_region_inputs_packed": 3}),
    ("hybrid", GOOD["hybrid"] | {"num_packed_inside_regions": 1}),
    ("hybrid", GOOD["hybrid"] | {"num_unpacked": 8}),
]


@pytest.mark.parametrize("name", GOOD)
def test_path_rule_accepts_the_declared_path(name):
    assert CORE_PATH_RULES[name](make_path(**GOOD[name])) == []


@pytest.mark.parametrize(("name", "counts"), BAD)
def test_path_rule_names_what_did_not_happen(name, counts):
    problems = CORE_PATH_RULES[name](make_path(**counts))
    assert problems and all("must be" in problem for problem in problems)


@pytest.mark.parametrize(("ran", "declared"), [(ran, name) for ran in GOOD for name in GOOD if ran != name])
def test_path_rule_never_takes_one_strategy_for_another(ran, declared):
    assert CORE_PATH_RULES[declared](make_path(**GOOD[ran]))
