"""Predicted against measured on the GPU at hand: one probe step per strategy, phase by phase.

    benchmarks/gpu_compare.sh [OUTPUT.md]

For fp32 and bf16, AdamW and SGD, sequence 768 and 1536: warm up, then read the allocator's peak of each
phase of one step. Each run in a fresh process; prints a table as it goes, so a stopped run keeps its rows.
Random weights, no download.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from dataclasses import replace
from typing import Any

from memstrat import processes
from memstrat.errors import ProcessError

PHASES = ("forward", "backward", "optimizer")
CASES = list(itertools.product((768, 1536), ("fp32", "bf16"), ("adamw", "sgd"),
                               ("baseline", "checkpoint", "offload", "hybrid")))


def measure(case: tuple[int, str, str, str]) -> dict[str, Any]:
    """Peaks (bytes) by phase of the third step, overall peaks, and the device's facts."""
    import torch

    from memstrat import strategies
    from memstrat.experiment import load_experiment
    from memstrat.models import build_model, make_inputs
    from memstrat.probe import observe_memory
    from memstrat.training_step import TrainingStep

    seq_len, dtype_mode, optimizer, name = case
    workload = load_experiment("pressure", weights="random", seq_len=seq_len, dtype_mode=dtype_mode,
                               optimizer=optimizer).workload
    strategy = strategies.get(name)
    model = build_model(workload, "cuda")
    ids, _ = make_inputs(workload, model.config, "cuda")
    strategy.prepare(model)
    step = TrainingStep(workload, strategy, model.train(), ids)
    step()
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    phases, resident_bytes = observe_memory(step)
    properties = torch.cuda.get_device_properties(0)
    return {"phases": {phase: memory.peak_allocated_bytes for phase, memory in phases.items()},
            "resident_after_forward_bytes": resident_bytes, "reserved_bytes": torch.cuda.max_memory_reserved(),
            "device": properties.name, "total_bytes": properties.total_memory,
            "capability": [properties.major, properties.minor], "torch": str(torch.__version__)}


def predict(case: tuple[int, str, str, str], measured: dict[str, Any]) -> dict[str, int]:
    """Predicted peak (bytes) of each phase on the device that was measured."""
    from memstrat.estimate import TraceSettings
    from memstrat.estimate.core import predict_one
    from memstrat.estimate.devices import ANY_DEVICE
    from memstrat.estimate.trace import trace_strategy
    from memstrat.experiment import load_experiment

    seq_len, dtype_mode, optimizer, name = case
    workload = load_experiment("pressure", weights="random", seq_len=seq_len, dtype_mode=dtype_mode,
                               optimizer=optimizer).workload
    device = replace(ANY_DEVICE, name=measured["device"], total_bytes=measured["total_bytes"],
                     capability=tuple(measured["capability"]))
    settings = TraceSettings(device=device, with_eval=False)
    return predict_one(trace_strategy(workload, name, settings), settings).phase_peak_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit-s", type=float, default=170.0, help="start no further case after this many seconds")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    began, device = time.monotonic(), "no case was measured"
    print("| length | dtype | optimizer | strategy | phase | measured (MiB) | predicted (MiB) | difference |")
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        if time.monotonic() - began > arguments.limit_s:
            print(f"stopped after {arguments.limit_s:.0f} s, before {case}", file=sys.stderr)
            return
        try:
            measured = processes.call("gpu_compare:measure", case)
        except ProcessError as error:
            print(f"| {' | '.join(map(str, case))} | - | {error.reason[:80]} | - | - |", flush=True)
            continue
        predicted = predict(case, measured)
        for phase in PHASES:
            seen, said = measured["phases"][phase] / 2**20, predicted[phase] / 2**20
            print(f"| {' | '.join(map(str, case))} | {phase} | {seen:,.1f} | {said:,.1f} | "
                  f"{(said / seen - 1) * 100:+.2f} % |", flush=True)
        device = f"{measured['device']}, torch {measured['torch']}"
    print(f"\n{device}, {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
