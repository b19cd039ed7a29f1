"""The longest sequence, or the largest micro-batch, that a strategy can train on a device; and a ladder.

Found by search: each probe is a traced step replayed at the device's capacity, cached segments freed
and the allocation tried again, as the allocator would. Does not cover time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memstrat.errors import InputError
from memstrat.estimate.core import predict_one
from memstrat.estimate.devices import Device
from memstrat.estimate.predict import Prediction
from memstrat.estimate.trace import TraceSettings, trace_strategy
from memstrat.models import load_config
from memstrat.workload import Workload, isolate_activations

SEQ_LEN_STEP = 64
"""Lengths are tried in multiples of this many tokens."""
MAX_MICRO_BATCH = 4096
DEFAULT_MAX_SEQ_LEN = 2**20
USABLE_SHARE = 0.97
"""Share of the capacity that the search aims its first guesses at; fragmentation takes the rest."""


@dataclass(frozen=True)
class Limit:
    """The largest value that fits; 0 if not even the smallest does. Bytes."""

    name: str
    quantity: str
    value: int
    peak_allocated_bytes: int | None
    is_model_limit: bool
    """It still fits at the model's own maximum; the device sets no limit below."""

    def record(self) -> dict[str, Any]:
        return {"name": self.name, self.quantity: self.value, "peak_allocated_bytes": self.peak_allocated_bytes,
                "is_model_limit": self.is_model_limit}


def find_longest(workload: Workload, strategy: str, device: Device, settings: TraceSettings | None = None) -> Limit:
    """The longest sequence, in multiples of 64 tokens, that the strategy can train.

    Raises:
        InputError: if the device has no capacity to hold against.
    """
    config = load_config(workload.replace(weights="random")).get_text_config()
    most = getattr(config, "max_position_embeddings", None) or DEFAULT_MAX_SEQ_LEN
    return _search("seq_len", strategy, SEQ_LEN_STEP, most, workload.seq_len, _capacity(device),
                   _probe(workload, strategy, device, settings, "seq_len"))


def find_largest_batch(workload: Workload, strategy: str, device: Device,
                       settings: TraceSettings | None = None) -> Limit:
    """The largest micro-batch at the workload's length that the strategy can train."""
    return _search("micro_batch", strategy, 1, MAX_MICRO_BATCH, workload.micro_batch, _capacity(device),
                   _probe(workload, strategy, device, settings, "micro_batch"))


def predict_ladder(workload: Workload, lengths: Sequence[int], device: Device, settings: TraceSettings | None = None,
                   report: Callable[[str], None] = lambda name: None) -> list[dict[str, Any]]:
    """G1's table predicted: a row per length and strategy, with the linear projection beside the estimate.

    `projected_peak_bytes` is the conservative projection G1 admits by: the shorter length's baseline
    peak times the ratio of lengths; None for the first length and for other strategies.
    """
    settings = replace(settings or TraceSettings(), device=device, with_eval=False)
    rows: list[dict[str, Any]] = []
    previous: tuple[int, int] | None = None
    for seq_len in lengths:
        task = isolate_activations(workload, seq_len)
        found = {}
        for name in workload.strategies:
            report(f"{name} at {seq_len}")
            found[name] = predict_one(trace_strategy(task, name, settings), settings)
        for name, prediction in found.items():
            is_projected = name == "baseline" and previous is not None
            rows.append({
                "seq_len": seq_len, "name": name, "peak_allocated_bytes": prediction.peak_allocated_bytes,
                "peak_reserved_bytes": prediction.peak_reserved_bytes, "fits": prediction.fits,
                "saving_bytes": found["baseline"].peak_allocated_bytes - prediction.peak_allocated_bytes,
                "projected_peak_bytes": previous[1] * seq_len / previous[0] if is_projected and previous else None})
        previous = (seq_len, found["baseline"].peak_allocated_bytes)
    return rows


# -- inside ---------------------------------------------------------------------------------

_Probe = Callable[[int], Prediction]


def _capacity(device: Device) -> int:
    if device.free_bytes is None:
        raise InputError("device_memory: must be given to search for a limit, got nothing. "
                         "Add --device-memory with a size such as 16GiB, or a card by --device.")
    return device.free_bytes


def _probe(workload: Workload, strategy: str, device: Device, settings: TraceSettings | None,
           quantity: str) -> _Probe:
    settings = replace(settings or TraceSettings(), device=device, with_eval=False)

    def probe(value: int) -> Prediction:
        return predict_one(trace_strategy(workload.replace(**{quantity: value}), strategy, settings), settings)
    return probe


def _search(quantity: str, name: str, step: int, most: int, start: int, capacity_bytes: int, probe: _Probe) -> Limit:
    """Secant steps on the peak inside a shrinking bracket; memory grows with both quantities."""
    top = max(1, most // step)
    below, above = 0, top + 1
    peaks: dict[int, int] = {}
    growing: dict[int, int] = {}
    guess = min(top, max(1, start // step))
    while above - below > 1:
        prediction = probe(guess * step)
        peaks[guess] = prediction.peak_allocated_bytes
        # The optimizer's peak does not grow with either quantity and would mislead the line.
        growing[guess] = max(prediction.phase_peak_bytes["forward"], prediction.phase_peak_bytes["backward"])
        if prediction.fits:
            below = guess
        else:
            above = guess
        guess = _next_guess(growing, below, above, capacity_bytes * USABLE_SHARE)
    return Limit(name, quantity, below * step, peaks.get(below), is_model_limit=below == top)


def _next_guess(peaks: dict[int, int], below: int, above: int, target_bytes: float) -> int:
    """Where a line through the last two probes meets the target, kept well inside the bracket."""
    middle = (below + above) // 2
    if len(peaks) == 1:
        guess = 2 * below if below else above // 2
    elif len(peaks) > 5 or above - below <= 4:
        guess = middle
    else:
        (first, low), (second, high) = list(peaks.items())[-2:]
        slope = (high - low) / (second - first)
        guess = round(second + (target_bytes - high) / slope) if slope > 0 else middle
        if guess <= below or guess >= above:
            # The line points out of the bracket: step over the end that it points to, only just.
            margin = max(1, (above - below) // 8)
            guess = below + margin if guess <= below else above - margin
    return min(above - 1, max(below + 1, guess))
