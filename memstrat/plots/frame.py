"""What stands around every figure drawn from a record: whose it is, what it measured, and how."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

from matplotlib.ticker import StrMethodFormatter

from memstrat.plots.drawing import SMALL_PT, WARNING_COLOUR, Canvas
from memstrat.readout import list_rows, read_table
from memstrat.records import CPU_REHEARSAL, REAL_GPU
from memstrat.wording import word

_LINE_CHARS, _FOOTER_CHARS = 66, 130
_GAP_PT, _LINE_PT = 11.0, 14.0  # above the axes: room for markers on the edge; one line of text
_STAMP = {"facecolor": "#FFF3E6", "edgecolor": WARNING_COLOUR, "boxstyle": "round,pad=0.35"}


def stamp_key(record: dict[str, Any]) -> str | None:
    """Why a reader should not take the figures for a GPU result of this project, or None."""
    mode = record.get("run_mode")
    known = {CPU_REHEARSAL: "rehearsal", REAL_GPU: None, "prediction": "prediction"}
    return known.get(str(mode), "elsewhere")


def describe_workload(record: dict[str, Any], language: str = "en") -> str:
    """Label, model, optimizer and device in one line; what the record does not say is left out."""
    config, experiment = read_table(record, "config"), read_table(record, "experiment")
    environment = read_table(record, "environment")
    weights = config.get("weights")
    if weights in ("random", "pretrained"):
        weights = f"({word(f'{weights}_weights', language)})"
    model = " ".join(str(part) for part in (config.get("model_id"), weights) if part)
    dtype = "bf16 autocast" if config.get("amp_dtype") else config.get("dtype")
    seq_len = None if "length_records" in record else config.get("seq_len")  # a ladder's lengths are on its axis
    length = f"{config.get('batch_size', '?')} x {seq_len} tokens" if seq_len else None
    optimizer = config.get("g1_optimizer") or config.get("optimizer")
    device = experiment.get("device") or environment.get("device")
    parts = (record.get("run_label"), model, length, dtype, optimizer, device)
    return ", ".join(str(part) for part in parts if part)


def memory_source_key(record: dict[str, Any]) -> str:
    """Which word says where the peaks come from, read off the runs."""
    lengths = list_rows(record, "length_records")
    rows = [row for holder in (record, *lengths) for row in list_rows(holder, "candidates")]
    sources = {run.get("memory_source") for row in rows for run in list_rows(row, "runs")
               if run.get("status") == "ok"} - {None}
    known = ("cuda_allocator", "tensor_accounting", "estimate")
    return sources.pop() if len(sources) == 1 and sources <= set(known) else "source_unknown"


def put_frame(drawn: Canvas, record: dict[str, Any], title_key: str, remark: str = "") -> None:
    """Title, workload line, footer and, where it is due, the stamp."""
    axes, language = drawn.figure.axes[0], drawn.language
    lines = textwrap.wrap(describe_workload(record, language), _LINE_CHARS, break_on_hyphens=False)
    axes.set_title(word(title_key, language), loc="left", weight="bold", pad=_GAP_PT + _LINE_PT * len(lines))
    for number, line in enumerate(reversed(lines)):
        axes.annotate(line, (0, 1), (0, _GAP_PT + _LINE_PT * number), xycoords="axes fraction",
                      textcoords="offset points", fontsize=SMALL_PT, color="#333333", va="baseline")
    stamp = stamp_key(record)
    if stamp:
        drawn.figure.suptitle(word(stamp, language), x=0.018, ha="left", fontsize=SMALL_PT + 1, weight="bold",
                              color="#8A3A00", bbox=_STAMP)
    footer = " ".join(part for part in (word(memory_source_key(record), language), remark, drawn.note) if part)
    drawn.figure.supxlabel("\n".join(textwrap.wrap(footer, _FOOTER_CHARS)), x=0.012, ha="left", fontsize=SMALL_PT,
                           color="#333333")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))


def put_legend(drawn: Canvas, handles: Iterable[Any]) -> None:
    """Beside the axes, so that it can never hide a point."""
    drawn.figure.legend(handles=list(handles), loc="outside right upper", frameon=False, labelspacing=0.9,
                        handlelength=2.2, alignment="left")


def opening(record: dict[str, Any], title_key: str, language: str) -> str:
    """First line of a figure's text alternative."""
    stamp = stamp_key(record)
    source = word(memory_source_key(record), language)
    title = (word(title_key, language), f"[{word(stamp, language)}]" if stamp else "")
    return "\n".join((" ".join(part for part in title if part), describe_workload(record, language), source))
