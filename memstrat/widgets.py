"""What the notebooks show: tables of rows, reference records, and gates to move.

Reads records, never measures. Every figure and control has its text: a table or a sentence that
says the same. Only core ipywidgets are used (7.7 to 8).
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from memstrat.errors import UnknownNameError
from memstrat.units import format_mib
from memstrat.workload import check_stage

REFERENCES = ("tiny", "smollm2", "public")
_ROW_COLUMNS = ("name", "status", "seq_len", "repeat_count", "successful_runs", "execution_path_verified",
                "peak_memory_mb", "samples_per_s", "step_time_ms", "eval_loss",
                "memory_saving_mb", "throughput_ratio", "quality_delta")
_HEADINGS_ZH = {  # record keys are identifiers and stay as they are
    "strategy": "策略", "left in place": "留在原地", "packed": "打包", "unpacked": "解包", "problems": "问题数",
    "recomputed regions": "重算的区域", "recomputed": "重算", "path problems": "路径问题", "task": "任务",
    "after forward, MiB": "前向后存活，MiB", "host peak, MiB": "主机端峰值，MiB", "peak, MiB": "峰值，MiB",
    "predicted, MiB": "预测，MiB", "measured, MiB": "实测，MiB", "measured elsewhere, MiB": "别处实测，MiB",
    "difference, %": "相差，%", "set in": "出现在", "parameters": "参数", "gradients": "梯度",
    "optimizer state": "优化器状态", "optimizer temporaries": "优化器临时量", "saved activations": "保存的激活",
    "logits and loss": "logits 与损失", "ratio in each block": "各区组的比值", "median": "中位数",
    "95 % interval": "95 % 区间",
}


def language() -> str:
    """en or zh: the notebook's own (`MEMSTRAT_LANGUAGE`, stamped by its first cell)."""
    return "zh" if os.environ.get("MEMSTRAT_LANGUAGE") == "zh" else "en"


def in_language(en: str, zh: str) -> str:
    """The text in the notebook's language."""
    return zh if language() == "zh" else en


class Table:
    """Rows for people: a table in a notebook, aligned text elsewhere (and for nbval)."""

    def __init__(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], caption: str = ""):
        self.columns = [_HEADINGS_ZH.get(column, column) if language() == "zh" else column for column in columns]
        self.rows = [[_shown(column, value) for column, value in zip(columns, row, strict=True)] for row in rows]
        self.caption = caption

    def __repr__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(_width(line[index]) for line in lines) for index in range(len(self.columns))]
        text = ["  ".join(_padded(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
                for line in lines]
        return "\n".join([*([self.caption] if self.caption else []), *text])

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            aligned = [f'<{tag} style="text-align:{"left" if index == 0 or not _is_figure(cell) else "right"}">'
                       f"{html.escape(cell)}</{tag}>" for index, cell in enumerate(cells)]
            return f"<tr>{''.join(aligned)}</tr>"

        caption = f"<caption>{html.escape(self.caption)}</caption>" if self.caption else ""
        body = "".join(line(row, "td") for row in self.rows)
        table = f"<table>{caption}<thead>{line(self.columns, 'th')}</thead><tbody>{body}</tbody></table>"
        return f'<div style="overflow-x:auto">{table}</div>'


def show(value: Any) -> None:
    """Display a value the rich way in a notebook, as text elsewhere."""
    from IPython.display import display

    display(value)


def show_rows(rows: Iterable[dict[str, Any]], columns: Sequence[str] | None = None) -> None:
    """A table of candidate rows or comparisons, one line each, in the order given.

    Args:
        rows: dicts; a key that a row lacks is shown as `-`.
        columns: keys to show; the known ones that occur in any row if None.
    """
    rows = list(rows)
    wanted = columns or [key for key in _ROW_COLUMNS if any(key in row for row in rows)]
    show(Table(wanted, [[row.get(key) for key in wanted] for row in rows]))


def all_done(*grade_ids: str) -> bool:
    """Whether all these exercises have passed their check; says which have not."""
    import memstrat

    missing = [grade_id for grade_id in grade_ids if not memstrat.is_done(grade_id)]
    if missing:
        names = ", ".join(missing)
        print(in_language(f"Skipped: this cell uses {names}. Finish {'it' if len(missing) == 1 else 'them'}, then run "
                          "the cell again.", f"已跳过：这个单元要用到 {names}。完成之后再运行一次。"))
    return not missing


def reference_record(name: str, kind: str = "g0") -> dict[str, Any]:
    """A record that ships with the package, to read before measuring; never a result of this machine.

    Args:
        name: `tiny` or `smollm2` (CPU rehearsals of these presets, as in `benchmarks/results`), or
            `public` (figures of a public GPU course, copied; without path fields).
        kind: `g0`, `g1` or `decision`.

    Raises:
        UnknownNameError: there is no such record.
    """
    source = files("memstrat").joinpath("reference", f"{name}_{kind}.json")
    if name not in REFERENCES or not source.is_file():
        raise UnknownNameError(f"reference: must be one of {', '.join(REFERENCES)} with a kind it has, got "
                               f"{name!r}, {kind!r}. Choose another.")
    return json.loads(source.read_text(encoding="utf-8"))


def show_drawing(drawing: Any, columns: Sequence[str] | None = None) -> None:
    """A figure with its text alternative, then the table it was drawn from.

    Args:
        drawing: what a function of `memstrat.plots` returned.
        columns: those of the table to show; all if None.
    """
    show(drawing)
    wanted = [drawing.columns.index(column) for column in columns or drawing.columns]
    show(Table([drawing.columns[index] for index in wanted],
               [[row[index] for index in wanted] for row in drawing.rows]))


def is_my_stage(stage: str, run_stage: str) -> bool:
    """Whether a stage's cell is to run; says so if it is not.

    Raises:
        UnknownNameError: RUN_STAGE is no stage.
    """
    if check_stage(run_stage) == stage:
        return True
    print(in_language(f"RUN_STAGE is {run_stage!r}: this cell waits for {stage!r} and does nothing.",
                      f"RUN_STAGE 是 {run_stage!r}：这个单元等的是 {stage!r}，现在什么都不做。"))
    return False


def show_prepare(report: dict[str, Any]) -> None:
    """What `stages.prepare` found, as one table: machine, packages, model, folder, records, next step."""
    preflight, model, records = report["preflight"], report["model"], report["records"]
    hardware = preflight.get("hardware") or {}
    packages = ", ".join(f"{name} {version}" for name, version in preflight.get("packages", {}).items() if version)
    budget, workload = report["budget"] or {}, report["workload"]
    rows = [
        (in_language("ready", "是否就绪"), in_language("yes", "是") if report["ready"] else in_language("no", "否")),
        (in_language("device", "设备"), f"{preflight.get('device')} · {hardware.get('device')}"),
        (in_language("memory, total / free", "内存，总量 / 空闲"),
         f"{format_mib(hardware.get('total_memory_mb'), 0)} / {format_mib(preflight.get('free_memory_mb'), 0)}"),
        (in_language("compute capability", "计算能力"), hardware.get("capability") or "-"),
        (in_language("packages", "软件包"), packages),
        (in_language("workload", "任务"), f"{workload['workload']}: {model['model_id']}, "
                                          f"{workload['batch_size']} x {workload['seq_len']} tokens"),
        (in_language("weights", "权重"), model["note"]),
        (in_language("memory cap", "内存上限"), format_mib(budget.get("memory_cap_mb"), 0)),
        (in_language("results folder", "结果目录"), report["results"]["folder"]),
        (in_language("training baseline", "训练基线"), report["manifest"]["status"]),
        (in_language("records of this label", "本标签的记录"),
         f"g0 {records['g0_path']}, g1 {records['g1_status']}" if records else in_language("none yet", "还没有")),
        *((in_language("problem", "问题"), problem) for problem in report["problems"]),
        *((in_language("warning", "警告"), warning) for warning in preflight.get("warnings", ())),
        *((in_language("next", "下一步"), action) for action in report["next_actions"]),
    ]
    show(Table([in_language("what", "项目"), in_language("found", "结果")], rows))


def show_decision(record: dict[str, Any]) -> None:
    """Both scopes of a decision record, and what goes on to the budget project."""
    scopes = record["decision_scopes"]
    scopes = list(scopes.values()) if isinstance(scopes, dict) else scopes
    show(Table([in_language("scope", "适用范围"), in_language("decision", "结论"), in_language("reason", "依据"),
                in_language("next action", "下一步")],
               [[scope["scope"], scope["decision"], scope["reason"], scope["next_action"]] for scope in scopes]))
    print(in_language("handoff", "交接"), record["handoff"]["consumer"], "·", record["handoff"]["status"])
    for scope in scopes:
        for limitation in scope.get("limitations", ()):
            print("-", limitation)


def _shown(column: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value)
    is_coarse = column.endswith(("_mb", "_ms", "_mib", "MiB"))
    return f"{value:,.{1 if is_coarse else 3}f}"


def _is_figure(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9,]+(\.[0-9]+)?", cell) is not None


def _padded(cell: str, width: int) -> str:
    return cell + " " * (width - _width(cell))


def _width(text: str) -> int:
    """Columns of a terminal: a Chinese character takes two."""
    return sum(2 if ord(letter) > 0x2E7F else 1 for letter in text)
