"""Cases of the three exercises on fair pairs: fixed ones to learn from, and seeded random ones.

Every random draw walks through all defects of an exercise once, in shuffled order, so that no run
of the check misses one; then it mixes several. Only input that the contract speaks of is drawn.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

Row = dict[str, Any]
METRICS = ("peak_memory_mb", "samples_per_s", "eval_loss")
NOT_FINITE: tuple[Any, ...] = (None, float("nan"), float("inf"), True, "8200")


class Case(NamedTuple):
    """One call. `name` says what it is about; hidden cases are never shown by it."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any] = {}
    source: str = "visible"


def make_row(name: str | None = None, **overrides: Any) -> Row:
    """A sound row; the overrides break it. A value of `ABSENT` removes the key."""
    row: Row = {"workload_id": "train-b2-s1024", "hardware_id": "gpu-a", "repeat_count": 5, "status": "ok",
                "execution_path_verified": True, "peak_memory_mb": 11000.0, "samples_per_s": 8.0, "eval_loss": 1.06}
    row = ({"name": name} if name is not None else {}) | row | overrides
    return {key: value for key, value in row.items() if value is not ABSENT}


ABSENT = object()
CHECKPOINT = {"peak_memory_mb": 8200.0, "samples_per_s": 6.8, "eval_loss": 1.08}
NO_METRICS = dict.fromkeys(METRICS)
OOM = {"status": "oom", "execution_path_verified": False, **NO_METRICS}


def visible_pairs() -> list[Case]:
    """Fixed cases of `ex_pairs`."""
    base, checkpoint = make_row("baseline"), make_row("checkpoint", **CHECKPOINT)
    leftover = {"peak_memory_mb": 7000.0, "samples_per_s": 7.9, "eval_loss": 1.06}
    cases = [
        ("one candidate", base, [checkpoint]),
        ("no candidate", base, []),
        ("a candidate out of memory", base, [checkpoint, make_row("offload", **OOM)]),
        ("out of memory with figures left over", base, [make_row("offload", **leftover, status="oom"), checkpoint]),
        ("failed with figures left over", base, [make_row("hybrid", **leftover, status="failed")]),
        ("no status given", base, [make_row("checkpoint", **CHECKPOINT, status=ABSENT)]),
        ("an unknown status", base, [make_row("checkpoint", **CHECKPOINT, status="partial_oom")]),
        ("a bool for a number", base, [make_row("checkpoint", **CHECKPOINT | {"samples_per_s": True})]),
        ("NaN", base, [make_row("checkpoint", **CHECKPOINT | {"eval_loss": float("nan")})]),
        ("a metric missing", base, [make_row("checkpoint", **CHECKPOINT | {"peak_memory_mb": ABSENT})]),
        ("path not verified", base, [make_row("checkpoint", **CHECKPOINT, execution_path_verified=False)]),
        ("more memory, other repeats", base, [make_row("offload", peak_memory_mb=12500.0, samples_per_s=9.0,
                                                       eval_loss=1.01, repeat_count=3)]),
        ("baseline out of memory", make_row("baseline", status="oom"), [checkpoint, make_row("offload", **OOM)]),
        ("baseline without a throughput", make_row("baseline", samples_per_s=0.0), [checkpoint]),
        ("whole numbers", make_row("baseline", peak_memory_mb=11000, samples_per_s=8),
         [make_row("checkpoint", peak_memory_mb=8200, samples_per_s=6, eval_loss=1)]),
    ]
    return [Case(name, [baseline, rows]) for name, baseline, rows in cases]


def visible_validate() -> list[Case]:
    """Fixed cases of `ex_validate`."""
    base, checkpoint = make_row("baseline"), make_row("checkpoint", **CHECKPOINT)
    offload = make_row("offload", **OOM)
    cases = [
        ("a valid experiment", base, [checkpoint, offload]),
        ("no candidate", base, []),
        ("a name missing", base, [make_row(**CHECKPOINT, workload_id="other"), checkpoint]),
        ("an empty name", base, [make_row("", **CHECKPOINT)]),
        ("one name twice", base, [checkpoint, offload, checkpoint]),
        ("another workload", base, [make_row("checkpoint", **CHECKPOINT, workload_id="train-b2-s2048")]),
        ("another machine", base, [make_row("checkpoint", **CHECKPOINT, hardware_id="gpu-b")]),
        ("fewer repeats", base, [make_row("checkpoint", **CHECKPOINT, repeat_count=4)]),
        ("an id missing on both sides", make_row("baseline", hardware_id=ABSENT),
         [make_row("checkpoint", **CHECKPOINT, hardware_id=ABSENT)]),
        ("path not verified", base, [make_row("checkpoint", **CHECKPOINT, execution_path_verified=False)]),
        ("path said in other words", base, [make_row("checkpoint", **CHECKPOINT, execution_path_verified="yes")]),
        ("a failed row without a path", base, [make_row("hybrid", status="failed", execution_path_verified=ABSENT)]),
        ("a bool for a number", make_row("baseline", samples_per_s=True), [checkpoint]),
        ("NaN in the baseline", make_row("baseline", eval_loss=float("nan")), [checkpoint]),
        ("a metric missing in the baseline", make_row("baseline", peak_memory_mb=ABSENT), [checkpoint]),
        ("several at once", make_row("baseline", eval_loss=None),
         [make_row("checkpoint", workload_id="x", repeat_count=1, execution_path_verified=False),
          make_row("checkpoint", hardware_id="gpu-b")]),
    ]
    return [Case(name, [baseline, rows]) for name, baseline, rows in cases]


def _comparable(name: str, repeats: int = 5, verified: bool = True) -> Row:
    return {"name": name, "status": "comparable", "repeat_count": repeats, "execution_path_verified": verified,
            "candidate_peak_memory_mb": 8200.0, "candidate_samples_per_s": 6.8, "candidate_eval_loss": 1.08,
            "memory_saving_mb": 2800.0, "throughput_ratio": 0.85, "quality_delta": 0.02}


def _bare(name: str, status: str) -> Row:
    return {"name": name, "status": status}


def make_evidence(baseline_repeats: int, comparisons: list[Row]) -> Row:
    """Evidence as `build_strategy_pair_evidence` returns it."""
    statuses = [row["status"] for row in comparisons]
    counts = {f"{status}_count": statuses.count(status) for status in ("comparable", "oom", "failed", "invalid")}
    return {"baseline": make_row("baseline", repeat_count=baseline_repeats), "comparisons": comparisons, **counts}


def visible_handoff() -> list[Case]:
    """Fixed cases of `ex_handoff`."""
    def case(name: str, repeats: int, rows: list[Row], minimum: int | None = None) -> Case:
        return Case(name, [make_evidence(repeats, rows)], {} if minimum is None else {"minimum_repeats": minimum})

    checkpoint, hybrid = _comparable("checkpoint"), _comparable("hybrid")
    return [
        case("complete evidence", 5, [checkpoint, _bare("offload", "oom")]),
        case("two candidates", 5, [hybrid, checkpoint]),
        case("a baseline with one repeat", 1, [checkpoint]),
        case("a candidate with one repeat", 5, [checkpoint, _comparable("hybrid", 1)]),
        case("exactly the minimum", 3, [_comparable("checkpoint", 3)]),
        case("another minimum", 5, [checkpoint], 8),
        case("a lower minimum", 2, [_comparable("checkpoint", 2)], 2),
        case("one repeat short of the minimum", 5, [checkpoint, _comparable("hybrid", 2)]),
        case("no path verified", 5, [_comparable("checkpoint", verified=False)]),
        case("one path verified", 5, [_comparable("checkpoint", verified=False), hybrid]),
        case("only a failed candidate", 5, [_bare("checkpoint", "failed")]),
        case("no candidate", 5, []),
        case("too few repeats and no path", 5, [_comparable("checkpoint", 1, verified=False)]),
    ]



# --- random cases ---------------------------------------------------------------------------------

def _random_row(draw: random.Random, name: str, ids: Row) -> Row:
    return make_row(name, **ids, peak_memory_mb=round(draw.uniform(2000, 16000), 2),
                    samples_per_s=round(draw.uniform(0.5, 12), 3), eval_loss=round(draw.uniform(0.8, 3.0), 4))


def _random_experiment(draw: random.Random, at_least: int = 1) -> tuple[Row, list[Row]]:
    ids = {"workload_id": f"train-b{draw.randint(1, 8)}-s{draw.choice([512, 1024, 2048])}",
           "hardware_id": f"gpu-{draw.choice('abcdef')}", "repeat_count": draw.randint(2, 9)}
    names = draw.sample(["checkpoint", "offload", "hybrid", "selective", "every_second", "boundary", "ckpt-2", "重算"],
                        draw.randint(max(at_least, 1), 4))
    return _random_row(draw, "baseline", ids), [_random_row(draw, name, ids) for name in names]


Defect = Callable[[random.Random, Row, list[Row]], None]


def _one(change: Callable[[random.Random, Row], None]) -> Defect:
    """A defect of one randomly chosen candidate."""
    def apply(draw: random.Random, baseline: Row, rows: list[Row]) -> None:
        change(draw, draw.choice(rows))
    return apply


def _set(key: str, *values: Any) -> Callable[[random.Random, Row], None]:
    def change(draw: random.Random, row: Row) -> None:
        value = draw.choice(values)
        if value is ABSENT:
            row.pop(key, None)
        else:
            row[key] = value
    return change


def _of_baseline(change: Callable[[random.Random, Row], None]) -> Defect:
    return lambda draw, baseline, rows: change(draw, baseline)


def _any_metric(*values: Any) -> Callable[[random.Random, Row], None]:
    return lambda draw, row: _set(draw.choice(METRICS), *values)(draw, row)


def _duplicate(draw: random.Random, baseline: Row, rows: list[Row]) -> None:
    rows.insert(draw.randint(0, len(rows)), dict(draw.choice(rows)))


def _absent_on_both(draw: random.Random, baseline: Row, rows: list[Row]) -> None:
    key = draw.choice(["workload_id", "hardware_id", "repeat_count"])
    for row in (baseline, draw.choice(rows)):
        row.pop(key, None)


def _failure(status: str) -> Callable[[random.Random, Row], None]:
    def change(draw: random.Random, row: Row) -> None:
        row["status"] = status
        if draw.random() < 0.5:
            row.update(NO_METRICS)
        _set("execution_path_verified", False, None, ABSENT)(draw, row)
    return change


def _nothing(draw: random.Random, baseline: Row, rows: list[Row]) -> None:
    """A sound experiment."""


VALIDATE_DEFECTS: list[Defect] = [
    _nothing, _duplicate, _absent_on_both, _one(_set("name", "", None, 7, ABSENT)),
    _one(_set("workload_id", "train-other", ABSENT)), _one(_set("hardware_id", "gpu-z", ABSENT)),
    _one(_set("repeat_count", 1, 10, ABSENT)), _one(_set("execution_path_verified", False, None, ABSENT)),
    _one(_set("execution_path_verified", 1, "true", "yes")), _one(_failure("oom")), _one(_failure("failed")),
    _one(_any_metric(*NOT_FINITE)), _of_baseline(_any_metric(True)), _of_baseline(_any_metric(*NOT_FINITE, ABSENT)),
]
PAIRS_DEFECTS: list[Defect] = [
    _nothing, _one(_failure("oom")), _one(_failure("failed")), _one(_set("status", ABSENT)),
    _one(_set("status", "partial_oom", "skipped", "running")), _one(_any_metric(True, False)),
    _one(_any_metric(*NOT_FINITE, ABSENT)), _one(_set("execution_path_verified", False, ABSENT)),
    _one(_set("repeat_count", 1, 2, 12)), _of_baseline(_set("status", "oom", "failed", "partial_oom")),
    _of_baseline(_set("samples_per_s", 0.0, -1.5)), _of_baseline(_any_metric(*NOT_FINITE, ABSENT)),
    _of_baseline(_set("status", ABSENT)),
]


def _random_experiments(defects: list[Defect], draw: random.Random, count: int) -> list[Case]:
    cases = []
    for number in range(count):
        chosen = [defects[number]] if number < len(defects) else draw.sample(defects, draw.randint(2, 4))
        baseline, rows = _random_experiment(draw, at_least=1 if number < len(defects) else 3)
        for defect in chosen:
            defect(draw, baseline, rows)
        cases.append(Case(f"random {number + 1}", [baseline, rows], source="random"))
    draw.shuffle(cases)
    return cases


def random_validate(draw: random.Random, count: int) -> list[Case]:
    return _random_experiments(VALIDATE_DEFECTS, draw, count)


def random_pairs(draw: random.Random, count: int) -> list[Case]:
    return _random_experiments(PAIRS_DEFECTS, draw, count)


def random_handoff(draw: random.Random, count: int) -> list[Case]:
    """Repeats around the minimum, paths verified or not, failure rows in between."""
    cases = []
    for number in range(count):
        minimum = draw.choice([None, None, 1, 2, 4, 5, 7])
        limit = 3 if minimum is None else minimum
        low = number % 3 == 0  # a third of the cases lies at or below the minimum
        rows = []
        for name in draw.sample(["checkpoint", "offload", "hybrid", "selective", "boundary"], draw.randint(0, 4)):
            kind = draw.choice(["comparable"] * 4 + ["oom", "failed", "invalid"])
            repeats = max(0, limit + draw.choice([-1, 0, 1] if low else [1, 2, 4]))
            verified = draw.random() < (0.2 if number % 4 == 1 else 0.75)
            rows.append(_comparable(name, repeats, verified) if kind == "comparable" else _bare(name, kind))
        baseline_repeats = max(0, limit + (draw.choice([-1, 0, 1]) if low else draw.choice([1, 3])))
        kwargs = {} if minimum is None else {"minimum_repeats": minimum}
        cases.append(Case(f"random {number + 1}", [make_evidence(baseline_repeats, rows)], kwargs, "random"))
    return cases
