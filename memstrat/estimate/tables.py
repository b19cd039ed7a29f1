"""Predictions and comparisons as tables for a terminal. All memory is in MiB."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from memstrat.estimate.run import Answer
from memstrat.units import bytes_to_mib, format_bytes

_SHORT = {"parameters": "params", "gradients": "grads", "optimizer_state": "opt state",
          "optimizer_temporaries": "opt temp", "saved_activations": "activations", "logits_and_loss": "logits",
          "other_temporaries": "other"}


def print_answer(result: Answer, console: Console | None = None) -> None:
    """The estimate, its advice and notes, then the ladder and the limits."""
    console = console or Console()
    found = result.estimate
    workload, record = found.workload, found.record()
    console.print(f"[bold]{workload.model_id}[/bold], {workload.dtype_mode}, micro-batch {workload.micro_batch}, "
                  f"sequence {workload.seq_len:,}, {workload.optimizer.name}, loss head {workload.loss_head}; "
                  f"predicted for {found.device.name}. MiB throughout.")
    console.print(_estimate_table(record))
    console.print(_phase_table(record))
    console.print(_split_table(record))
    for line in [*result.advice, *found.notes, f"Rough {found.time_basis}."]:
        console.print(line, highlight=False)
    if result.ladder:
        console.print(_ladder_table(result.ladder))
    for title, limits in (("longest sequence", result.longest), ("largest micro-batch", result.largest_batch)):
        for limit in limits:
            why = " (the model's own limit)" if limit.is_model_limit else ""
            peak = format_bytes(limit.peak_allocated_bytes)
            console.print(f"{title}, {limit.name}: {limit.value:,}{why}, peak {peak}", highlight=False)


def print_comparison(result: dict[str, Any], console: Console | None = None) -> None:
    """Predicted against measured, a row a candidate, then what could explain an implausible one."""
    console = console or Console()
    table = _table(f"predicted against measured, {result['label']}, {result['memory_source']}", "kind", "length",
                   "strategy", "measured", "predicted", "difference", "verdict")
    for row in result["rows"]:
        table.add_row(row["kind"], f"{row['seq_len']:,}", row["name"], _mib(row["measured_mib"]),
                      _mib(row["predicted_mib"]),
                      "-" if row["difference_pct"] is None else f"{row['difference_pct']:+.2f} %", row["verdict"])
    console.print(table)
    for row in result["rows"]:
        for line in row["explanations"]:
            console.print(f"{row['name']} at {row['seq_len']:,}: {line}", highlight=False)
    for line in result["advice"]:
        console.print(line, highlight=False)


def _estimate_table(record: dict[str, Any]) -> Table:
    table = _table("predicted peaks", "strategy", "allocated", "set by", "reserved", "host", "fits", "time")
    for row in record["strategies"]:
        ratio = row["rough_time_ratio"]
        table.add_row(row["name"], _of(row["peak_allocated_bytes"]), row["peak_phase"], _range(row),
                      _of(row["host_peak_bytes"]), _fits(row), "-" if ratio is None else f"{ratio:.1f} x")
    return table


def _phase_table(record: dict[str, Any]) -> Table:
    table = _table("peak of each phase", "strategy", "forward", "backward", "optimizer", "alive after forward")
    for row in record["strategies"]:
        phases = [_of(row["phases"][phase]["peak_allocated_bytes"]) for phase in ("forward", "backward", "optimizer")]
        table.add_row(row["name"], *phases, _of(row["resident_after_forward_bytes"]))
    return table


def _split_table(record: dict[str, Any]) -> Table:
    table = _table("what the peak is made of", "strategy", *_SHORT.values())
    for row in record["strategies"]:
        table.add_row(row["name"], *(_of(row["categories_at_peak"][name]) for name in _SHORT))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=f"{title} (MiB)", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in ("strategy", "set by", "fits", "kind", "verdict") else "right")
    return table


def _ladder_table(rows: list[dict[str, Any]]) -> Table:
    table = _table("G1 predicted, SGD without momentum", "length", "strategy", "allocated", "reserved", "saves",
                   "projected", "fits")
    for row in rows:
        table.add_row(f"{row['seq_len']:,}", row["name"], _of(row["peak_allocated_bytes"]),
                      _of(row["peak_reserved_bytes"]), _of(row["saving_bytes"]), _of(row["projected_peak_bytes"]),
                      _fits(row))
    return table


def _range(row: dict[str, Any]) -> str:
    span = row["peak_reserved_range_bytes"]
    if span is None:
        return "-" if row["peak_reserved_bytes"] is None else _of(row["peak_reserved_bytes"])
    low, high = (f"{bytes_to_mib(value):,.0f}" for value in span)
    return low if low == high else f"{low} to {high}"


def _fits(row: dict[str, Any]) -> str:
    return {None: "-", True: "yes", False: "no"}[row["fits"]]


def _of(num_bytes: float | None) -> str:
    return "-" if num_bytes is None else _mib(bytes_to_mib(num_bytes))


def _mib(mib: float | None) -> str:
    return "-" if mib is None else format(mib, ",.0f" if abs(mib) >= 1000 else ",.1f")
