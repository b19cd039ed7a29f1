"""What `memstrat estimate` does: read the task and the assumptions, then answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from memstrat.estimate.advice import advise
from memstrat.estimate.core import Estimate, estimate
from memstrat.estimate.devices import ANY_DEVICE, Device, find_device
from memstrat.estimate.search import Limit, find_largest_batch, find_longest, predict_ladder
from memstrat.estimate.trace import TraceSettings
from memstrat.experiment import load_experiment, parse_ints
from memstrat.units import parse_bytes
from memstrat.workload import Workload

Report = Callable[[str], None]


@dataclass
class Answer:
    """Everything asked for in one call."""

    estimate: Estimate
    advice: list[str]
    ladder: list[dict[str, Any]] = field(default_factory=list)
    longest: list[Limit] = field(default_factory=list)
    largest_batch: list[Limit] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """As plain data; ladder and limits only where they were asked for."""
        extras = {"ladder": self.ladder, "longest": [limit.record() for limit in self.longest],
                  "largest_batch": [limit.record() for limit in self.largest_batch]}
        return self.estimate.record() | {"advice": self.advice} | {key: rows for key, rows in extras.items() if rows}


def load(preset: str | None, workload_file: Path | None, overrides: dict[str, Any]) -> Workload:
    """The task, with every override that is not None. Weights and text play no part in memory.

    Raises:
        InputError, UnknownNameError: as `load_experiment`.
    """
    if overrides.get("strategies") is not None:
        overrides = overrides | {"strategies": [name.strip() for name in overrides["strategies"].split(",")
                                                if name.strip()]}
    experiment = load_experiment(preset, workload_file, default_preset="pressure",
                                 **(overrides | {"weights": "random", "data": "random"}))
    return experiment.workload


def assume(device: str | None = None, device_memory: str | None = None, other_memory: str | None = None,
           cublas_workspace: str | None = None, use_reentrant: bool = False) -> tuple[Device, TraceSettings]:
    """The device and the settings that the flags mean.

    Args:
        device: a card of the table, or `cpu` for the accounting of a CPU rehearsal.
        device_memory: total memory, or a card; wins over the card's own memory.
        other_memory: what the allocator cannot have.
        cublas_workspace: of one handle.
        use_reentrant: reentrant checkpointing.

    Raises:
        UnknownNameError, InputError: for a card or a size that is none.
    """
    is_cpu = device == "cpu"
    target = ANY_DEVICE if device is None or is_cpu else find_device(device)
    if device_memory is not None:
        sized = find_device(device_memory)
        target = sized if device is None else replace(target, total_bytes=sized.total_bytes)
    if other_memory is not None:
        target = replace(target, other_bytes=parse_bytes(other_memory, "other_memory"))
    workspace = None if cublas_workspace is None else parse_bytes(cublas_workspace, "cublas_workspace")
    return target, TraceSettings(device=target, use_reentrant=use_reentrant, cublas_workspace_bytes=workspace,
                                 is_cpu=is_cpu)


def answer(workload: Workload, device: Device, settings: TraceSettings, *, ladder: str | None = None,
           longest: bool = False, largest_batch: bool = False, report: Report = lambda name: None) -> Answer:
    """Estimate every strategy, with advice; then the ladder and the limits asked for.

    Raises:
        ModelError: the model cannot be traced. InputError: a bad ladder, or a limit without a capacity.
    """
    found = estimate(workload, device=device, settings=settings, report=report)
    result = Answer(found, advise(found))
    names = workload.strategies
    if ladder is not None:
        lengths = [workload.seq_len, *(length for length in parse_ints(ladder) if length != workload.seq_len)]
        result.ladder = predict_ladder(workload, lengths, device, settings, report)
    if longest:
        result.longest = [find_longest(workload, name, device, settings) for name in names]
    if largest_batch:
        result.largest_batch = [find_largest_batch(workload, name, device, settings) for name in names]
    return result
