"""Predict a whole strategy comparison without a device: the front door of `memstrat.estimate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memstrat.estimate.devices import ANY_DEVICE, Device
from memstrat.estimate.predict import VARIANTS, Prediction, predict, predict_live
from memstrat.estimate.time_model import StepCost, cost_of, describe_rates, rates_of, time_ratio
from memstrat.estimate.trace import Trace, TraceSettings, resolve_optimizer, trace_strategy
from memstrat.memory.profile import CATEGORIES
from memstrat.workload import OptimizerSpec, Workload

ESTIMATE_SCHEMA = "memory-strategy-estimate/v1"


@dataclass
class StrategyEstimate:
    """One strategy's predicted memory (bytes) and rough time ratio."""

    name: str
    prediction: Prediction
    cost: StepCost
    kernels: tuple[str, ...]
    time_ratio: float | None = None

    @property
    def peak_allocated_bytes(self) -> int:
        return self.prediction.peak_allocated_bytes

    @property
    def peak_phase(self) -> str:
        """The phase that sets the peak."""
        return max(self.prediction.phase_peak_bytes, key=self.prediction.phase_peak_bytes.__getitem__)

    def record(self) -> dict[str, Any]:
        """As plain data, every public key of the record's `strategies`."""
        found, profile = self.prediction, self.prediction.profile
        reserved = found.reserved_by_variant
        return {
            "name": self.name,
            "peak_allocated_bytes": found.peak_allocated_bytes,
            "peak_reserved_bytes": found.peak_reserved_bytes,
            "peak_reserved_range_bytes": [min(reserved.values()), max(reserved.values())] if reserved else None,
            "peak_reserved_by_variant_bytes": reserved,
            "peak_phase": self.peak_phase,
            "phases": {name: {"peak_allocated_bytes": peak, "host_peak_bytes": profile.phases[name].peak_host_bytes,
                              "categories_at_peak": profile.phases[name].categories_at_peak}
                       for name, peak in found.phase_peak_bytes.items()},
            "resident_after_forward_bytes": profile.resident_after_forward_bytes,
            "host_peak_bytes": profile.peak_host_bytes,
            "categories_at_peak": profile.categories_at_peak,
            "eval_peak_allocated_bytes": found.eval_peak_bytes,
            "fits": found.fits, "out_of_memory": found.out_of_memory, "num_cache_flushes": found.num_retries,
            "attention_kernels": list(self.kernels),
            "flops": self.cost.flops, "recomputed_flops": self.cost.recomputed_flops,
            "host_moved_bytes": self.cost.moved_bytes, "rough_time_ratio": self.time_ratio,
        }


@dataclass
class Estimate:
    """What each strategy of a workload would need on a device."""

    workload: Workload
    device: Device
    settings: TraceSettings
    strategies: list[StrategyEstimate]
    time_basis: str
    notes: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> StrategyEstimate:
        return next(item for item in self.strategies if item.name == name)

    def record(self) -> dict[str, Any]:
        """As plain data for `--json` and plots: the workload, what was assumed, and `strategies`."""
        device, optimizer = self.device, resolve_optimizer(self.workload.optimizer, self.settings.is_cpu)
        workspace = self.settings.cublas_workspace_bytes
        return {
            "schema_version": ESTIMATE_SCHEMA,
            "workload": self.workload.model_dump(mode="json"),
            "assumptions": {
                "device": device.name, "device_total_bytes": device.total_bytes,
                "device_free_bytes": device.free_bytes, "other_use_bytes": device.other_use_bytes,
                "capability": list(device.capability), "use_reentrant": self.settings.use_reentrant,
                "optimizer": optimizer.model_dump(mode="json"),
                "cublas_workspace_bytes": device.cublas_workspace_bytes if workspace is None else workspace,
                "cublaslt_workspace_bytes": self.settings.cublaslt_workspace_bytes,
                "allocator": "PyTorch's caching allocator, default settings", "variants": list(VARIANTS),
                "memory_source": "live tensors, as in a CPU rehearsal" if self.settings.is_cpu else "allocator model",
                "time_basis": self.time_basis,
            },
            "categories": list(CATEGORIES),
            "strategies": [item.record() for item in self.strategies],
            "notes": self.notes,
        }


    def timelines(self) -> dict[str, list[dict[str, Any]]]:
        """Live bytes through the traced step, by strategy: one point an event, split by category."""
        return {item.name: [{"phase": point.phase, "num_bytes": point.device_bytes, "host_bytes": point.host_bytes,
                             "categories": dict(zip(CATEGORIES, point.categories, strict=True))}
                            for point in item.prediction.profile.timeline]
                for item in self.strategies}


def estimate(workload: Workload, *, device: Device = ANY_DEVICE, strategies: Sequence[str] | None = None,
             settings: TraceSettings | None = None, report: Callable[[str], None] = lambda name: None) -> Estimate:
    """Predict every strategy of a workload: no weights, no device, no download for a bundled config.

    Args:
        workload: as for g0. Its weights and data do not matter; shapes do.
        device: capacity, attention kernels and workspaces; see `find_device`.
        strategies: instead of the workload's. Without `baseline` among them there is no time ratio.
        settings: further assumptions; `device` here wins over the one in it.
        report: called with each strategy's name before its trace.

    Raises:
        ModelError: if the model cannot be built, or followed without its data.
    """
    settings = replace(settings or TraceSettings(), device=device)
    items = []
    for name in strategies or workload.strategies:
        report(name)
        trace = trace_strategy(workload, name, settings)
        prediction = predict_live(trace) if settings.is_cpu else predict(trace, device)
        items.append(StrategyEstimate(name, prediction, cost_of(trace), trace.kernels))
    rates = rates_of(device, workload.dtype_mode)
    baseline = next((item for item in items if item.name == "baseline"), None)
    for item in items:
        item.time_ratio = time_ratio(item.cost, baseline.cost, rates) if baseline else None
    return Estimate(workload, device, settings, items, describe_rates(rates), _notes(workload, items))


def estimate_peak_bytes(workload: Workload, strategy: str = "baseline", seq_len: int | None = None,
                        optimizer: OptimizerSpec | None = None, *, settings: TraceSettings | None = None) -> int:
    """Peak allocated (bytes) of one strategy at one length: the cheap question of an admission check.

    Args:
        workload: everything that is not given otherwise.
        strategy: name of a registered strategy.
        seq_len: tokens; the workload's unless given.
        optimizer: the workload's unless given.
        settings: device and further assumptions; `TraceSettings(is_cpu=True)` for a CPU rehearsal.

    Raises:
        ModelError: if the model cannot be built, or followed without its data.
    """
    changes = {"seq_len": seq_len, "optimizer": optimizer and optimizer.model_dump()}
    workload = workload.replace(**{key: value for key, value in changes.items() if value is not None})
    settings = replace(settings or TraceSettings(), with_eval=False)
    trace = trace_strategy(workload, strategy, settings)
    return predict_one(trace, settings).peak_allocated_bytes


def predict_one(trace: Trace, settings: TraceSettings) -> Prediction:
    """The prediction under the first variant alone."""
    if settings.is_cpu:
        return predict_live(trace)
    return predict(trace, settings.device, dict([next(iter(VARIANTS.items()))]))


def _notes(workload: Workload, items: Sequence[StrategyEstimate]) -> list[str]:
    """What a reader must know before comparing with a measurement."""
    notes = []
    larger = [item.name for item in items if (item.prediction.eval_peak_bytes or 0) > item.peak_allocated_bytes]
    if larger:
        notes.append(f"An evaluation pass after the step, with gradients still held, would peak higher than training "
                     f"under {', '.join(larger)}: read peaks before evaluating, or set gradients to None first.")
    return notes
