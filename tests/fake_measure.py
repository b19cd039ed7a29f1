"""A stand-in for `measure_run` with chosen figures, so that stages can be tested in milliseconds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from memstrat.records import PathEvidence, Run
from memstrat.runner import Runner, run_in_child

PEAKS_MB = {"baseline": 30.0, "checkpoint": 20.0, "offload": 18.0, "hybrid": 19.0}
STEP_TIMES_MS = {"baseline": 100.0, "checkpoint": 125.0, "offload": 200.0, "hybrid": 160.0}
PATHS = {"baseline": {}, "checkpoint": {"num_recomputed_regions": 4}, "offload": {"num_packed": 9, "num_unpacked": 9},
         "hybrid": {"num_recomputed_regions": 4, "num_packed": 5, "num_unpacked": 5, "num_region_inputs_packed": 4}}


def measure(spec: Any, report: Callable[[str, int, int], None]) -> Run:
    """Figures by strategy; MEMSTRAT_TEST_PLAN (JSON) changes what `<strategy>` or `<strategy>@<seq_len>` does."""
    plan = json.loads(os.environ.get("MEMSTRAT_TEST_PLAN", "{}"))
    what = plan.get(f"{spec.strategy}@{spec.workload.seq_len}", plan.get(spec.strategy, {}))
    if what == "oom":
        raise MemoryError("planned")
    if what == "crash":
        os._exit(7)
    what = dict(what)
    if spec.repeat in what.pop("oom_repeats", ()):
        raise MemoryError("planned")
    log = os.environ.get("MEMSTRAT_TEST_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{spec.strategy} {spec.repeat} {spec.workload.seq_len}\n")
    time_ms = STEP_TIMES_MS[spec.strategy] + spec.repeat
    counts = {"num_regions": 4, "num_recomputed_regions": 0, "num_packed": 0, "num_unpacked": 0, "packed_bytes": 0,
              "unpacked_bytes": 0, "packed_bytes_by_kind": {}, "num_packed_inside_regions": 0}
    values = {"name": spec.strategy, "repeat": spec.repeat, "seq_len": spec.workload.seq_len,
              "optimizer": spec.workload.optimizer.name, "status": "ok", "step_times_ms": [time_ms],
              "step_time_ms": time_ms, "samples_per_s": 1000 / time_ms, "loss": 2.0, "eval_loss": 2.5,
              "peak_memory_mb": PEAKS_MB[spec.strategy] * spec.workload.seq_len / 256,
              "memory_source": "tensor_accounting", "step1_loss": 7.5, "step1_grad_norm": 1.25,
              "path": PathEvidence(**(counts | PATHS[spec.strategy])), "execution_path_verified": True}
    return Run(**(values | what))


class InProcess(Runner):
    """Measures the planned figures right here instead of in a fresh process."""

    def run(self, spec: Any, report: Any = None) -> Run:
        return Run.model_validate(run_in_child("tests.fake_measure:measure", spec, report))


def plan_stages(monkeypatch: Any, runner: type[Runner] = InProcess) -> None:
    """Let the stages measure planned figures through `runner`."""
    for stage in ("baseline", "g0", "g1"):
        monkeypatch.setattr(f"memstrat.stages._{stage}.Runner", runner)
