"""A rough time ratio against the baseline, from arithmetic and bytes moved alone.

It rests on two stated rates and on nothing measured: half of the card's peak arithmetic, and one
rate for copies to and from the host, which wait for one another. Kernel launches, the optimizer and
memory-bound operations are left out, so read it as a labelled guess: published cost models of this
kind land at 0.8 to 0.95 of the real time. Memory is predicted; time is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from memstrat.estimate.devices import Device
from memstrat.estimate.trace import Trace

ARITHMETIC_EFFICIENCY = 0.5
"""Share of the peak that a training step of a language model reaches. Assumed."""
HOST_BANDWIDTH = 10e9
"""Bytes a second between host and device, one way. Assumed: about what PCIe 4.0 gives pageable copies."""


@dataclass(frozen=True)
class StepCost:
    """What a step does beside the optimizer: floating-point operations, and bytes over the host link."""

    flops: int
    recomputed_flops: int
    moved_bytes: int

    def seconds(self, flops_per_s: float, bytes_per_s: float) -> float:
        return (self.flops + self.recomputed_flops) / flops_per_s + self.moved_bytes / bytes_per_s


def cost_of(trace: Trace) -> StepCost:
    """Operations of the traced step, and twice the bytes it packed for the host (there and back)."""
    ends, flops = trace.ends, trace.flops
    packed = sum(event.num_bytes for event in trace.events[ends["first"]:ends["second"]]
                 if event.kind == "malloc" and event.tier == "host" and event.phase == "forward")
    return StepCost(flops.get("forward", 0) + flops.get("backward", 0), flops.get("recompute", 0), 2 * packed)


def rates_of(device: Device, dtype_mode: str, bytes_per_s: float = HOST_BANDWIDTH) -> tuple[float, float]:
    """Operations and bytes a second that the ratio rests on."""
    peak = device.bf16_tflops if dtype_mode == "bf16" else device.fp32_tflops
    return peak * 1e12 * ARITHMETIC_EFFICIENCY, bytes_per_s


def time_ratio(cost: StepCost, baseline: StepCost, rates: tuple[float, float]) -> float:
    """The strategy's time over the baseline's: 1.3 means 30 % longer."""
    return cost.seconds(*rates) / baseline.seconds(*rates)


def describe_rates(rates: tuple[float, float]) -> str:
    """What the ratio rests on, for people."""
    return (f"time ratio: a guess from arithmetic at {rates[0] / 1e12:.0f} TFLOP/s and host copies at "
            f"{rates[1] / 1e9:.0f} GB/s; nothing was timed")
