"""Predicted against measured, for a G0 or G1 record, strategy by strategy. Records are only read.

A measured peak further than 5 % from the prediction is reported as implausible, with what could
explain it: each explanation is a prediction of its own that comes within 1 % of the measured peak.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from memstrat.errors import InputError
from memstrat.estimate.advice import advise_rows, what_if_of
from memstrat.estimate.core import Estimate, estimate
from memstrat.estimate.devices import ANY_DEVICE, DEVICES, Device
from memstrat.estimate.trace import TraceSettings
from memstrat.evidence import finite_number, rows_of
from memstrat.experiment import load_experiment, preset_names, resolve_model
from memstrat.readout import Readout
from memstrat.strategies import names as known_strategies
from memstrat.units import bytes_to_mib, mib_to_bytes, parse_bytes
from memstrat.workload import OptimizerSpec, Workload, build, isolate_activations

IMPLAUSIBLE_PCT = 5.0
EXPLAINED_PCT = 1.0
Report = Callable[[str], None]


def compare_readout(readout: Readout, *, model: str | None = None, other_memory: str | None = None,
                    report: Report = lambda name: None) -> dict[str, Any]:
    """Compare every candidate of a label's G0 and G1 with its prediction.

    Args:
        readout: of `read_label` or `read_file`.
        model: folder of a local model, which a record does not name.
        other_memory: as for `estimate`.

    Returns:
        `label`, `memory_source`, `rows` (kind, seq_len, name, measured_mib, predicted_mib,
        difference_mib = predicted - measured, difference_pct, phases, verdict, explanations), `advice`.

    Raises:
        InputError: neither G0 nor G1. ModelError: the model cannot be found or traced.
    """
    records = [("g0", readout.g0), ("g1", readout.g1)]
    if not any(record for _, record in records):
        raise InputError(f"label: must have a G0 or G1 record, got neither for {readout.label!r}. Run memstrat g0.")
    result: dict[str, Any] = {"label": readout.label, "memory_source": None, "rows": [], "advice": []}
    for kind, record in records:
        if record is None:
            continue
        settings = _settings_of(record, other_memory)
        result["memory_source"] = "tensor_accounting" if settings.is_cpu else "cuda_allocator"
        for workload, candidates in _tasks_of(kind, record, model):
            report(f"{kind} at {workload.seq_len}")
            found = estimate(workload, device=settings.device, settings=settings)
            rows = [_row(kind, candidate, found) for candidate in candidates]
            result["rows"] += rows
            if kind == "g0":
                result["advice"] = _advice(found, rows)
    return result


def advise_record(record: dict[str, Any], *, model: str | None = None) -> list[str]:
    """Advice on a measured G0 record: what sets its peaks, which lever would move them. Costs a trace a strategy.

    Empty where no measured peak is plausible: then there is nothing to explain, see `compare_readout`.

    Args:
        record: a G0 record as read from JSON.
        model: folder of a local model, which a record does not name.

    Raises:
        ModelError: the model cannot be found or traced.
    """
    settings = _settings_of(record, None)
    workload, candidates = next(_tasks_of("g0", record, model))
    found = estimate(workload, device=settings.device, settings=settings)
    return _advice(found, [_row("g0", candidate, found) for candidate in candidates])


def workload_of_record(record: dict[str, Any], model: str | None = None) -> Workload:
    """The task a record was measured on, as far as memory depends on it.

    Raises:
        InputError: if the record's config names no usable task.
    """
    config = record.get("config") or {}
    identity = (record.get("experiment") or {}) | config
    names = [str(row.get("name")) for row in _candidates(record) if row.get("name") in known_strategies()]
    optimizer = {"name": identity.get("optimizer", "AdamW"), "foreach": identity.get("optimizer_foreach"),
                 "fused": identity.get("optimizer_fused")}
    if optimizer["name"] == "SGD":
        optimizer["momentum"] = identity.get("optimizer_momentum") or 0.0
    values = {
        "model_id": identity.get("model_id") or identity.get("model"), "weights": "random",
        "micro_batch": identity.get("batch_size", 1), "seq_len": identity.get("seq_len"),
        "dtype_mode": "bf16" if identity.get("amp_dtype") else "fp32", "optimizer": OptimizerSpec(**optimizer),
        "loss_head": identity.get("loss_head") or "hf", "attention": identity.get("attention") or "auto",
        "strategies": tuple(dict.fromkeys(["baseline", *names])),
    }
    if model is not None:
        values |= resolve_model(model)
    elif config.get("workload") in preset_names():  # a preset knows where its model lies
        preset = load_experiment(config["workload"]).workload
        values["model_path"] = preset.model_path if preset.model_id == values["model_id"] else None
    if str(values["model_id"]).startswith("local/") and not values.get("model_path"):
        raise InputError(f"model: must be the folder that was measured, got nothing for {values['model_id']!r}. "
                         "A record holds no paths: give --model FOLDER.")
    return build(Workload, values, "record")


# -- inside ---------------------------------------------------------------------------------


def _candidates(record: dict[str, Any]) -> list[dict[str, Any]]:
    rows = rows_of(record.get("candidates"))
    for length in rows_of(record.get("length_records")):
        rows = rows + rows_of(length.get("candidates"))
    return rows


def _tasks_of(kind: str, record: dict[str, Any], model: str | None) -> Iterator[tuple[Workload, list[dict[str, Any]]]]:
    workload = workload_of_record(record, model)
    if kind == "g0":
        yield workload, _known(rows_of(record.get("candidates")))
        return
    for length in rows_of(record.get("length_records")):
        yield isolate_activations(workload, length["seq_len"]), _known(rows_of(length.get("candidates")))


def _known(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in candidates if row.get("name") in known_strategies()]


def _settings_of(record: dict[str, Any], other_memory: str | None) -> TraceSettings:
    """The device a record was measured on: its capability decides kernels, its memory is no limit here."""
    is_cpu = record.get("run_mode") == "cpu_rehearsal"
    hardware = (record.get("environment_preflight") or {}).get("hardware") or {}
    name = str(hardware.get("device") or (record.get("config") or {}).get("device") or "")
    capability = hardware.get("capability")
    known = next((card for key, card in DEVICES.items() if key.lower() in name.lower()), ANY_DEVICE)
    device: Device = replace(known, name=name or known.name)
    if isinstance(capability, str) and "." in capability:
        major, minor = capability.split(".")[:2]
        device = replace(device, capability=(int(major), int(minor)))
    total_mb = finite_number(hardware.get("total_memory_mb"))
    if total_mb is not None:
        device = replace(device, total_bytes=mib_to_bytes(total_mb))
    if other_memory is not None:
        device = replace(device, other_bytes=parse_bytes(other_memory, "other_memory"))
    if is_cpu:
        device = ANY_DEVICE
    return TraceSettings(device=device, is_cpu=is_cpu)


def _row(kind: str, candidate: dict[str, Any], found: Estimate) -> dict[str, Any]:
    item, measured = found[candidate["name"]], finite_number(candidate.get("peak_memory_mb"))
    predicted = bytes_to_mib(item.peak_allocated_bytes)
    pct = None if not measured else (predicted - measured) / measured * 100
    is_implausible = pct is not None and abs(pct) > IMPLAUSIBLE_PCT
    verdict = "not measured" if pct is None else "implausible" if is_implausible else "plausible"
    return {
        "kind": kind, "seq_len": found.workload.seq_len, "name": item.name, "measured_mib": measured,
        "predicted_mib": predicted, "difference_mib": None if measured is None else predicted - measured,
        "difference_pct": pct, "measured_reserved_mib": finite_number(candidate.get("peak_reserved_mb")),
        "predicted_reserved_mib": [bytes_to_mib(value) for value in item.prediction.reserved_by_variant.values()],
        "phases": _phases(candidate, item.prediction.phase_peak_bytes), "verdict": verdict,
        "explanations": list(_explain(item.name, measured or 0.0, predicted, found)) if is_implausible else [],
        "prediction": item.record(),
    }


def _phases(candidate: dict[str, Any], predicted: dict[str, int]) -> dict[str, dict[str, float | None]]:
    """Peaks by phase: the largest of the candidate's probe steps beside the prediction. MiB."""
    table = {}
    for phase, peak in predicted.items():
        seen = [finite_number(((run.get("phases") or {}).get(phase) or {}).get("peak_allocated_bytes"))
                for run in rows_of(candidate.get("runs"))]
        known = [value for value in seen if value is not None]
        table[phase] = {"measured_mib": bytes_to_mib(max(known)) if known else None,
                        "predicted_mib": bytes_to_mib(peak)}
    return table


def _explain(name: str, measured: float, predicted: float, found: Estimate) -> Iterator[str]:
    """Other readings of the run whose prediction meets the measured peak (MiB)."""
    off = f"{abs(predicted - measured):,.0f} MiB ({abs(predicted / measured - 1):.0%})"
    yield f"the measured peak is {off} {'above' if measured > predicted else 'below'} the prediction."
    item, hits = found[name], 0

    def meets(num_bytes: int | None) -> bool:
        return num_bytes is not None and abs(bytes_to_mib(num_bytes) / measured - 1) * 100 <= EXPLAINED_PCT

    if meets(item.prediction.eval_peak_bytes):
        hits += 1
        yield "it equals the predicted peak of an evaluation pass: the peak was read after evaluating."
    if name != "baseline" and meets(found["baseline"].peak_allocated_bytes):
        hits += 1
        yield "it equals the baseline's prediction: the strategy's path did not run."
    for text, changes in _alternatives(found.workload):
        try:
            other = estimate(found.workload.replace(**changes), device=found.device, strategies=(name,),
                             settings=found.settings)
        except InputError:
            continue
        if meets(other[name].peak_allocated_bytes):
            hits += 1
            yield f"it equals the prediction with {text}: that setting may differ from the record's."
    if not hits:
        yield "no other reading of the task meets it: look for another process's tensors, or another model."


def _alternatives(workload: Workload) -> Iterator[tuple[str, dict[str, Any]]]:
    foreach = workload.optimizer.foreach is not False
    yield ("the optimizer's foreach off" if foreach else "the optimizer's foreach on",
           {"optimizer": workload.optimizer.model_dump() | {"foreach": not foreach, "fused": None}})
    yield (("bf16 autocast", {"dtype_mode": "bf16"}) if workload.dtype_mode == "fp32"
           else ("fp32", {"dtype_mode": "fp32"}))
    if workload.attention != "math":
        yield "math attention", {"attention": "math"}
    yield (("the chunked loss head", {"loss_head": "chunked"}) if workload.loss_head == "hf"
           else ("transformers' loss head", {"loss_head": "hf"}))


def _advice(found: Estimate, rows: list[dict[str, Any]]) -> list[str]:
    """Advice on the measured peaks; what sets them comes from the prediction where that is plausible."""
    merged = [row["prediction"] | {"peak_allocated_bytes": mib_to_bytes(row["measured_mib"])}
              for row in rows if row["verdict"] == "plausible"]
    return advise_rows(merged, found.workload, what_if_of(found))
