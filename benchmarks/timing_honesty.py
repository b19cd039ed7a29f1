"""Is a step time measured through the library that of a bare training loop?

Pairs of fresh processes, in turn library first and bare loop first: the library's own run of the
`baseline` strategy, and a loop of five lines around the same model, data and optimizer. The median
of the pairs' ratios must lie within 3 % of 1.

    python benchmarks/timing_honesty.py [--pairs 15] [--preset tiny] [--device cpu]

Run it on an idle machine; it takes about two minutes for `tiny` on two cores. Not covered: the cost
of strategies, of which a bare loop knows nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time

from memstrat.candidates import bootstrap_interval
from memstrat.environment import hardware_facts, resolve_device
from memstrat.errors import MemstratError
from memstrat.experiment import load_experiment
from memstrat.runner import Runner
from memstrat.workload import Workload

MIN_PAIRS, TOLERANCE_RATIO = 15, 0.03
ITERS, WARMUP = 20, 3


def time_bare_loop(workload: Workload, device: str) -> float:
    """Median step time in ms of a plain loop. Runs in a fresh process."""
    import torch

    from memstrat.models import build_model, make_inputs

    model = build_model(workload, device).train()
    ids, _ = make_inputs(workload, model.config, device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.optimizer.lr, foreach=workload.optimizer.foreach)
    times_ms = []
    for _ in range(workload.warmup + workload.iters):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(times_ms[workload.warmup:])


def main() -> int:
    """Measure the pairs and print their ratios. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=MIN_PAIRS)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    if args.pairs < MIN_PAIRS:
        parser.error(f"--pairs: must be at least {MIN_PAIRS}, got {args.pairs}. One run a side decides nothing.")
    try:
        device = resolve_device(args.device)
        workload = load_experiment(args.preset, weights="random", iters=ITERS, warmup=WARMUP).workload
        ratios = measure_pairs(workload, device, args.pairs)
    except MemstratError as error:
        print(error, file=sys.stderr)
        return 1
    median, (low, high) = statistics.median(ratios), bootstrap_interval(ratios)
    print(f"{args.preset} on {hardware_facts(device)['device']}, {len(ratios)} pairs: library / bare loop "
          f"median {median:.4f}, 95 % interval {low:.4f} to {high:.4f}, "
          f"single ratios {min(ratios):.3f} to {max(ratios):.3f}")
    if abs(median - 1) <= TOLERANCE_RATIO:
        return 0
    print(f"ratio: must be within {TOLERANCE_RATIO:.0%} of 1, got {median:.4f}. Stop other work and run this again.",
          file=sys.stderr)
    return 1


def measure_pairs(workload: Workload, device: str, num_pairs: int) -> list[float]:
    """Library's step time over the bare loop's, one ratio a pair; the order alternates."""
    ratios = []
    with Runner(device) as runner:
        def library() -> float:
            run = runner.run(runner.spec(workload, "baseline", 0))
            if run.status != "ok":
                raise MemstratError(f"baseline: must run, got {run.status}: {run.reason}. Mend that first.")
            return run.step_time_ms

        def bare() -> float:
            return runner.call("timing_honesty:time_bare_loop", workload, device)

        for pair in range(num_pairs):
            sides = (library, bare) if pair % 2 == 0 else (bare, library)
            times = {side.__name__: side() for side in sides}
            ratios.append(times["library"] / times["bare"])
            print(f"pair {pair + 1:2d}: library {times['library']:8.3f} ms, bare loop {times['bare']:8.3f} ms, "
                  f"ratio {ratios[-1]:.4f} (load {os.getloadavg()[0]:.1f})", flush=True)
    return ratios


if __name__ == "__main__":
    sys.exit(main())
