"""Records as tables for a terminal; notebooks show the same ones.

Reads records, also those made elsewhere: what a record lacks is shown as `-` or `not recorded`, never
filled in. Decides nothing: a decision is shown only where one is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from memstrat.errors import RecordError
from memstrat.evidence import finite_number
from memstrat.gates import GATES, Verdict, judge_candidates, min_memory_saving_mb, min_throughput_ratio
from memstrat.readout import list_rows, read_table
from memstrat.records import CPU_REHEARSAL, REAL_GPU
from memstrat.wording import verdict_key, word

REHEARSAL_TITLE, ELSEWHERE_TITLE = word("rehearsal"), word("elsewhere")
_SCOPE = {"full_training_adoption": "full training", "activation_memory_mechanism": "activation memory only"}
_PASSED = {True: "pass", False: "fail", None: "-"}
_STYLE = {"pass": "green", "fail": "red"}


def candidates_table(record: dict[str, Any]) -> Table:
    """Every candidate of a G0 record, one column each: figures, runs, path, and how it stands.

    Raises:
        RecordError: the record holds no candidates.
    """
    judged = _judged(record)
    table = _table(record, "Candidates", ("",), tuple(str(item.name) for _, item in judged), ())
    lines = {
        "peak allocated, MiB": [figure(row.get("peak_memory_mb"), 1) for row, _ in judged],
        "peak reserved, MiB": [figure(row.get("peak_reserved_mb"), 1) for row, _ in judged],
        "saving, MiB": [figure(item.memory_saving_mb, 1) for _, item in judged],
        "step time, ms": [figure(row.get("step_time_ms"), 1) for row, _ in judged],
        "samples/s": [figure(row.get("samples_per_s"), 3) for row, _ in judged],
        "throughput ratio": [figure(item.throughput_ratio, 3) for _, item in judged],
        "eval loss": [figure(row.get("eval_loss"), 4) for row, _ in judged],
        "runs": [_runs(row) for row, _ in judged],
        "path": [item.path for _, item in judged],
        "verdict": [word(verdict_key(item, read_table(record, "budget"))) for _, item in judged],
    }
    for label, cells in lines.items():
        table.add_row(label, *cells)
    return table


def gates_table(record: dict[str, Any]) -> Table:
    """Every gate of a G0 record's budget against every candidate: pass, fail, or - where it is not asked.

    Raises:
        RecordError: the record holds no candidates.
    """
    judged = [item for _, item in _judged(record)]
    table = _table(record, "Gates", ("gate", "limit"), (), tuple(str(item.name) for item in judged))
    for gate, (label, limit) in _limits(record).items():
        marks = [_PASSED[item.gates[gate]] for item in judged]
        table.add_row(label, limit, *(Text(mark, style=_STYLE.get(mark, "")) for mark in marks))
    return table


def ladder_table(record: dict[str, Any]) -> Table:
    """Peak allocated (MiB) of every strategy at every length of a G1 record, and the lengths refused.

    Raises:
        RecordError: the record holds no lengths.
    """
    lengths = list_rows(record, "length_records")
    if not lengths:
        raise RecordError("length_records: must hold at least one length, got none. "
                          "Check that the file is a g1 record.")
    names = list(dict.fromkeys(str(row.get("name")) for item in lengths for row in list_rows(item, "candidates")))
    table = _table(record, "Ladder", ("peak allocated, MiB",), tuple(names), ("eligible",))
    table.columns[-1].min_width = len("checkpoint,")
    summary = read_table(record, "summary")
    judged = {item.get("seq_len"): item.get("strategies") or {} for item in list_rows(summary, "per_length")}
    for item in lengths:
        rows = {str(row.get("name")): row for row in list_rows(item, "candidates")}
        eligible = [name for name, state in judged.get(item.get("seq_len"), {}).items() if state.get("eligible")]
        table.add_row(f"length {item.get('seq_len')}", *(_peak_or_status(rows.get(name)) for name in names),
                      ", ".join(eligible) or "-")
    for check in list_rows(read_table(record, "admission"), "checks"):
        if check.get("status") == "blocked":
            projected, limit = check.get("projected_peak_mb"), check.get("safe_process_limit_mb")
            note = f"refused: {figure(projected, 1)} projected, {figure(limit, 1)} allowed"
            table.add_row(f"length {check.get('seq_len')}", *("-" for _ in names), note)
    return table


def decision_panel(record: dict[str, Any] | None, problems: Iterable[str] = ()) -> Panel:
    """What a decision record says in its two scopes; without one, that nothing is decided, and why.

    Args:
        record: a decision record, or None.
        problems: what stands in the way of a decision, as `review` lists it.
    """
    if record is None:
        lines = ["not decided", *(f"- {problem}" for problem in problems)]
        return Panel(Text("\n".join(lines)), title="Decision", title_align="left", expand=False)
    lines = Text()
    for name, scope in _scopes(record):
        lines.append(f"{_SCOPE.get(name, name)}: ")
        lines.append(str(scope.get("decision")), style="bold")
        lines.append(f" ({scope.get('reason')}); next: {scope.get('next_action')}\n")
    for scope in (scope for _, scope in _scopes(record) if scope.get("limitations")):
        lines.append(f"limits of the second: {', '.join(map(str, scope['limitations']))}\n", style="dim")
    handoff = read_table(record, "handoff")
    lines.append(f"handed to {handoff.get('consumer')}: {handoff.get('status')}")
    return Panel(lines, title=_title(record, "Decision"), title_align="left", expand=False)


def figure(value: Any, digits: int) -> str:
    """A number for people, or `-` where there is none."""
    number = finite_number(value)
    return "-" if number is None else f"{number:,.{digits}f}"


def _judged(record: dict[str, Any]) -> list[tuple[dict[str, Any], Verdict]]:
    rows = list_rows(record, "candidates")
    if not rows:
        raise RecordError("candidates: must be a list of rows, got none. Check that the file is a g0 record.")
    verdicts = judge_candidates(rows, read_table(record, "budget"), record.get("quality_floor"))
    return list(zip(rows, verdicts, strict=True))


def _limits(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Label and limit of each gate, in the order in which they are asked."""
    budget, loss = read_table(record, "budget"), read_table(record, "quality_floor").get("max_val_loss")
    said = {
        "path_unverified": ("path verified", "yes"),
        "runs_incomplete": ("all runs succeeded", "yes"),
        "memory_cap": ("peak allocated, MiB", f"<= {figure(budget.get('memory_cap_mb'), 1)}"),
        "throughput_floor": ("samples/s", f">= {figure(budget.get('min_samples_per_s', 0), 2)}"),
        "memory_saving": ("saving, MiB", f">= {figure(min_memory_saving_mb(budget), 1)}"),
        "throughput": ("throughput ratio", f">= {figure(min_throughput_ratio(budget), 2)}"),
        "quality": ("eval loss", "not judged" if loss is None else f"<= {figure(loss, 4)}"),
    }
    return {gate: said[gate] for gate in GATES}


def _runs(row: dict[str, Any]) -> str:
    """`3 ok`, `2 ok, 1 oom`; where no runs are recorded, the status alone."""
    counts = ((row.get(f"{key}_runs"), shown) for key, shown in
              (("successful", "ok"), ("oom", "oom"), ("failed", "failed")))
    parts = [f"{count} {shown}" for count, shown in counts if count]
    return ", ".join(parts) or str(row.get("status") or "not recorded")


def _peak_or_status(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    return figure(row.get("peak_memory_mb"), 1) if row.get("status") == "ok" else str(row.get("status"))


def _scopes(record: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    scopes = read_table(record, "decision_scopes")  # a list in records made elsewhere
    return [(name, read_table(scopes, name)) for name in scopes] or [
        (str(scope.get("scope")), scope) for scope in list_rows(record, "decision_scopes")]


def _title(record: dict[str, Any], what: str) -> str:
    mode, label = record.get("run_mode"), record.get("run_label")
    mark = {CPU_REHEARSAL: f" [{REHEARSAL_TITLE}]", REAL_GPU: ""}.get(str(mode), f" [{ELSEWHERE_TITLE}]")
    return f"{what}{f' of {label}' if label else ''}{mark}".replace("[", r"\[")


def _table(record: dict[str, Any], what: str, left: tuple[str, ...], figures: tuple[str, ...],
           right: tuple[str, ...]) -> Table:
    table = Table(title=_title(record, what), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
                  pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in figures:
        table.add_column(name, justify="right", overflow="fold", min_width=8)  # a figure is never broken in two
    for name in right:
        table.add_column(name, overflow="fold", min_width=min(len(name), 12))
    return table
