"""What a person reads on the terminal: tables of records, and where things lie."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from memstrat.readout import Readout
from memstrat.records import CPU_REHEARSAL
from memstrat.tables import candidates_table, decision_panel, gates_table, ladder_table
from memstrat.units import format_mib

_console = Console(highlight=False)


def print_stage(stage: str, result: dict[str, Any]) -> None:
    """The result of one stage, as its own command shows it."""
    {"baseline": _print_baseline, "prepare": _print_prepare, "g0": _print_g0, "g1": _print_g1,
     "review": _print_review, "close": _print_close}[stage](result)


def print_readout(readout: Readout) -> None:
    """All records of a label: candidates and gates, the ladder, the decision, and what to be careful of."""
    if readout.g0:
        _console.print(candidates_table(readout.g0), gates_table(readout.g0))
    elif readout.baseline:
        _console.print(candidates_table(_as_candidates(readout.baseline)))
    if readout.g1:
        _console.print(ladder_table(readout.g1))
    if readout.decision:
        _console.print(decision_panel(readout.decision))
    for warning in readout.warnings:
        _console.print(f"[yellow]careful:[/] {warning}")


def _print_baseline(result: dict[str, Any]) -> None:
    _console.print(candidates_table(_as_candidates(result)))
    _print_record(result)


def _print_g0(result: dict[str, Any]) -> None:
    _console.print(candidates_table(result), gates_table(result))
    if result["g0_reused"]:
        _console.print("Nothing was measured: this label's G0 is complete.")
    _print_record(result)


def _print_g1(result: dict[str, Any]) -> None:
    _console.print(ladder_table(result))
    reason = f" ({result['reason']})" if result["reason"] else ""
    _console.print(f"ladder: {result['status']}{reason}; {result['assessment']['decision']}: "
                   f"{result['assessment']['reason']}")
    _print_record(result)


def _print_review(result: dict[str, Any]) -> None:
    table = _facts(f"Review of {result['run_label']}")
    table.add_row("G0", result["g0_path"] or "not recorded")
    table.add_row("every repeat succeeded", "yes" if result["g0_complete"] else "no")
    table.add_row("G1", f"{result['g1_path'] or ''} {result['g1_status']}".strip())
    table.add_row("ready for a decision", "yes" if result["ready_for_decision"] else "no")
    _console.print(table)
    for problem in result["problems"]:
        _console.print(f"  - {problem}")


def _print_close(result: dict[str, Any]) -> None:
    _console.print(decision_panel(result))
    _print_record(result)


def _print_prepare(result: dict[str, Any]) -> None:
    report, workload = result["preflight"], result["workload"]
    hardware = report["hardware"] or {}
    table = _facts(f"Prepare: preset {workload['workload']}, label {result['run_label']}")
    mode = "CPU rehearsal: never a GPU result" if result["run_mode"] == CPU_REHEARSAL else "GPU"
    table.add_row("run mode", mode)
    table.add_row("device", f"{hardware.get('device', '-')}, {format_mib(hardware.get('total_memory_mb'), 0)}, "
                            f"{format_mib(report['free_memory_mb'], 0)} free")
    versions = [f"{name} {version}" for name, version in report["packages"].items() if version]
    table.add_row("packages", ", ".join(versions))
    load = f"{report['load_average']:.1f}"
    table.add_row("threads, cores, load", f"{report['num_threads']}, {report['num_cores']}, {load}")
    table.add_row("model", result["model"]["note"])
    table.add_row("task", f"{workload['dtype']}{' under bf16 autocast' if workload['amp_dtype'] else ''}, micro-batch "
                          f"{workload['batch_size']}, {workload['seq_len']} tokens, ladder "
                          f"{', '.join(map(str, workload['ladder']))}")
    writable = "" if result["results"]["writable"] else ", not writable"
    table.add_row("results", f"{result['results']['folder']}{writable}")
    table.add_row("training baseline", f"{result['manifest']['status']}. {result['manifest'].get('made_by', '')}")
    _console.print(table)
    if result["reference"]:
        reference = result["reference"]
        _console.print(f"Reference record {reference['record_path']}, on {reference['device']}. {reference['note']}")
        _console.print(candidates_table({"candidates": reference["candidate_rows"], "run_mode": reference["run_mode"]}))
    for warning in report["warnings"]:
        _console.print(f"[yellow]careful:[/] {warning}")
    for problem in result["problems"]:
        _console.print(f"[red]missing:[/] {problem}")
    _console.print(*(f"next: {action}" for action in result["next_actions"]), sep="\n")


def _facts(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table


def _as_candidates(report: dict[str, Any]) -> dict[str, Any]:
    """A training baseline in the form of a record with one candidate."""
    return {**report, "candidates": [report["baseline"]]}


def _print_record(result: dict[str, Any]) -> None:
    state = {"written": "written", "already_complete": "was there already, unchanged"}[result["record_state"]]
    _console.print(f"record: {result['record_path']} ({state})", soft_wrap=True)
