"""Time the estimate against torch's own MemTracker and a weights-only estimate, on one task, side by side.

    python benchmarks/estimate_vs_memtracker.py [--preset pressure] [--seq-len 768] [--json]

Each contender runs in a fresh process that has imported everything before its clock starts. MemTracker
runs the same model, loss and optimizer under fake tensors, as its documentation shows, for the baseline
alone (its time is for one strategy, ours for all four). The weights-only figure is what
`accelerate estimate-memory` reports for training with Adam: four times the bytes of the weights.

Does not measure a GPU. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings


def run_estimate(preset: str, seq_len: int) -> dict[str, float]:
    """All four strategies by memstrat: seconds, resident MiB, the baseline's peak in MiB."""
    from memstrat.estimate import estimate
    from memstrat.experiment import load_experiment
    from memstrat.units import bytes_to_mib

    workload = load_experiment(preset, weights="random", data="random", seq_len=seq_len).workload
    before = _resident_mib()
    began = _clock()
    found = estimate(workload)
    return {"seconds": _since(began)[0], "cpu_seconds": _since(began)[1], "num_strategies": len(found.strategies),
            "resident_mib": _resident_mib(), "resident_before_mib": before,
            "baseline_peak_mib": bytes_to_mib(found["baseline"].peak_allocated_bytes)}


def run_memtracker(preset: str, seq_len: int) -> dict[str, float]:
    """One strategy by torch's MemTracker: seconds, resident MiB, the peak in MiB."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker
    from transformers import AutoModelForCausalLM

    from memstrat.experiment import load_experiment
    from memstrat.loss_heads import causal_lm_loss
    from memstrat.models import load_config
    from memstrat.units import bytes_to_mib

    workload = load_experiment(preset, weights="random", data="random", seq_len=seq_len).workload
    before = _resident_mib()
    began = _clock()
    with FakeTensorMode():
        model = AutoModelForCausalLM.from_config(load_config(workload), dtype=torch.float32).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=True)
        ids = torch.randint(0, 100, (workload.micro_batch, workload.seq_len))
        tracker = MemTracker()
        tracker.track_external(model, optimizer, ids)
        with tracker:
            for _ in range(2):  # the optimizer's state appears in the first step
                causal_lm_loss(model, ids, ids, workload.loss_head).backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")
    total = max(sum(value for key, value in kinds.items() if str(key).endswith("Total")) for kinds in peak.values())
    return {"seconds": _since(began)[0], "cpu_seconds": _since(began)[1], "num_strategies": 1,
            "resident_mib": _resident_mib(), "resident_before_mib": before, "baseline_peak_mib": bytes_to_mib(total)}


def run_weights_only(preset: str, seq_len: int) -> dict[str, float]:
    """Four times the weights, as `accelerate estimate-memory` reckons for Adam; knows no activations."""
    from memstrat.experiment import load_experiment
    from memstrat.models import build_model
    from memstrat.units import bytes_to_mib

    workload = load_experiment(preset, weights="random", data="random", seq_len=seq_len).workload
    began = _clock()
    model = build_model(workload, "meta")
    weights = sum(parameter.nbytes for parameter in model.parameters())
    return {"seconds": _since(began)[0], "cpu_seconds": _since(began)[1], "num_strategies": 0,
            "resident_mib": _resident_mib(), "resident_before_mib": 0.0, "baseline_peak_mib": bytes_to_mib(4 * weights)}


CONTENDERS = {"memstrat": run_estimate, "memtracker": run_memtracker, "weights_only": run_weights_only}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="pressure")
    parser.add_argument("--seq-len", type=int, default=768)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contender", choices=CONTENDERS, help="run one of them in this process")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.contender:
        import torch  # noqa: F401  imports are no part of the comparison
        import transformers.models.auto.modeling_auto  # noqa: F401

        import memstrat.estimate  # noqa: F401

        print(json.dumps(CONTENDERS[arguments.contender](arguments.preset, arguments.seq_len)))
        return
    results = {}
    for name in CONTENDERS:
        command = [sys.executable, __file__, "--contender", name, "--preset", arguments.preset,
                   "--seq-len", str(arguments.seq_len)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results[name] = json.loads(output.splitlines()[-1])
    ours, theirs = results["memstrat"], results["memtracker"]
    per_strategy = theirs["cpu_seconds"] / (ours["cpu_seconds"] / ours["num_strategies"])
    if arguments.json:
        print(json.dumps(results | {"speedup_per_strategy": per_strategy}, indent=2))
        return
    print("| contender | strategies | seconds | processor seconds | resident (MiB) | baseline's peak (MiB) |")
    print("|---|---|---|---|---|---|")
    for name, row in results.items():
        print(f"| {name} | {row['num_strategies']} | {row['seconds']:.1f} | {row['cpu_seconds']:.1f} | "
              f"{row['resident_mib']:.0f} | {row['baseline_peak_mib']:,.0f} |")
    print(f"\nPer strategy {per_strategy:.1f} x faster than MemTracker, by processor time.")


def _clock() -> tuple[float, float]:
    """Wall clock and processor time (s). The second hardly minds what else the machine does."""
    return time.perf_counter(), time.process_time()


def _since(began: tuple[float, float]) -> tuple[float, float]:
    return time.perf_counter() - began[0], time.process_time() - began[1]


def _resident_mib() -> float:
    """The process's highest resident memory so far (MiB; Linux counts it in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
