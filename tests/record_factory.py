"""Small records to show, draw and judge: hand-readable figures, every field open to an override."""

from __future__ import annotations

from typing import Any

# peak (MiB), samples/s, eval loss
FIGURES = {"baseline": (100.0, 10.0, 2.0), "checkpoint": (60.0, 8.0, 2.0), "offload": (50.0, 4.0, 2.0),
           "hybrid": (40.0, 9.0, 2.0)}
MIB = 2**20


def make_run(name: str, repeat: int = 0, **changes: Any) -> dict[str, Any]:
    peak, rate, loss = FIGURES[name]
    phases = {"forward": (peak - 20) * MIB, "backward": peak * MIB, "optimizer": 45 * MIB}
    values = {"name": name, "repeat": repeat, "status": "ok", "peak_memory_mb": peak, "samples_per_s": rate,
              "eval_loss": loss, "memory_source": "tensor_accounting", "resident_after_forward_bytes": 30 * MIB,
              "phases": {phase: {"peak_allocated_bytes": int(peak)} for phase, peak in phases.items()}}
    return values | changes


def make_candidate(name: str, **changes: Any) -> dict[str, Any]:
    peak, rate, loss = FIGURES[name]
    runs = [make_run(name, repeat, samples_per_s=rate + repeat - 1) for repeat in range(3)]
    values = {"name": name, "status": "ok", "peak_memory_mb": peak, "peak_reserved_mb": None, "samples_per_s": rate,
              "step_time_ms": 1000 / rate, "loss": loss, "eval_loss": loss, "execution_path_verified": True,
              "successful_runs": 3, "oom_runs": 0, "failed_runs": 0, "runs": runs,
              "stability": {"peak_memory_range_mb": [peak - 1, peak],
                            "throughput_range_samples_per_s": [rate - 1, rate + 1]}}
    return values | changes


def make_oom(name: str) -> dict[str, Any]:
    return {"name": name, "status": "oom", "peak_memory_mb": None, "samples_per_s": None, "eval_loss": None,
            "execution_path_verified": None, "successful_runs": 0, "oom_runs": 3, "failed_runs": 0, "runs": []}


def make_g0(*candidates: dict[str, Any], **changes: Any) -> dict[str, Any]:
    values = {
        "run_label": "demo", "run_mode": "cpu_rehearsal",
        "config": {"model_id": "small/model", "weights": "random", "batch_size": 1, "seq_len": 256, "dtype": "float32",
                   "optimizer": "AdamW"},
        "experiment": {"device": "some CPU"},
        "budget": {"memory_cap_mb": 90.0, "min_samples_per_s": 2.0, "min_memory_saving_mb": 20.0,
                   "min_throughput_ratio": 0.7},
        "quality_floor": {"max_val_loss": 2.04},
        "candidates": list(candidates) or [make_candidate(name) for name in FIGURES]}
    return values | changes


def make_g1(**changes: Any) -> dict[str, Any]:
    longer = [make_candidate(name, peak_memory_mb=2 * peak) for name, (peak, *_) in FIGURES.items()
              if name != "offload"]
    lengths = [{"seq_len": 256, "source": "g1_sgd_baseline", "candidates": [make_candidate(name) for name in FIGURES]},
               {"seq_len": 512, "source": "g1_sgd", "candidates": [*longer, make_oom("offload")]}]
    refused = {"seq_len": 1024, "status": "blocked", "projected_peak_mb": 400.0, "safe_process_limit_mb": 350.0}
    state = {"memory_saving_mb": 60.0, "throughput_ratio": 0.8, "eligible": True, "reason": None}
    values = {**make_g0(), "config": {"model_id": "small/model", "seq_len": 256, "optimizer": "AdamW",
                                      "g1_optimizer": "SGD"},
              "length_records": lengths, "status": "completed_with_safety_boundary",
              "admission": {"checks": [{"seq_len": 512, "status": "admitted"}, refused]},
              "summary": {"per_length": [{"seq_len": 512, "strategies": {"checkpoint": state}}]}}
    del values["candidates"]
    return values | changes
