"""Peak allocated against throughput, with the gates as lines: which strategy is worth adopting?"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from memstrat.errors import RecordError
from memstrat.evidence import finite_number
from memstrat.gates import Verdict, evidence_of, judge_candidates, min_memory_saving_mb, min_throughput_ratio
from memstrat.plots.drawing import GATE_COLOUR, GOOD_COLOUR, Drawing, canvas, looks_of
from memstrat.plots.frame import opening, put_frame, put_legend
from memstrat.readout import list_rows, read_table
from memstrat.units import format_mib
from memstrat.wording import verdict_key, word

COLUMNS = ("strategy", "status", "peak_allocated_mib", "peak_min_mib", "peak_max_mib", "throughput_samples_per_s",
           "throughput_min", "throughput_max", "memory_saving_mib", "throughput_ratio", "eval_loss", "path", "verdict")


def plot_memory_throughput(record: dict[str, Any], language: str = "en") -> Drawing:
    """Each strategy's peak (MiB) against its throughput, with every gate that the record's budget sets.

    Shows one fixed workload; says nothing of other lengths or devices. A strategy that was not measured
    has no place in the plane: its marker stands on the upper edge and the legend says why.

    Args:
        record: a G0 record as read from JSON, also one made elsewhere.
        language: en or zh; English with a note where no font has Chinese characters.

    Raises:
        RecordError: the record holds no candidates. UnknownNameError: another language.
    """
    candidates = list_rows(record, "candidates")
    if not candidates:
        raise RecordError("candidates: must be a list of rows, got none. Check that the file is a g0 record.")
    budget = read_table(record, "budget")
    verdicts = judge_candidates(candidates, budget, record.get("quality_floor"))
    looks = looks_of([str(item.name) for item in verdicts])
    with canvas(language) as drawn:
        axes, handles = drawn.figure.subplots(), []
        num_unplaced = 0
        for row, item in zip(candidates, verdicts, strict=True):
            look, peak, rate = looks[str(item.name)], *_figures(row)
            if peak is None or rate is None:
                axes.plot(0.02 + 0.05 * num_unplaced, 1.0, look.marker, color=look.colour, mfc="white", ms=9, mew=1.8,
                          transform=axes.transAxes, clip_on=False)
                num_unplaced += 1
            else:
                _put_point(axes, row, look, peak, rate, filled=item.feasible)
            handles.append(Line2D([], [], linestyle="", marker=look.marker, color=look.colour, ms=9, mew=1.8,
                                  mfc=look.colour if item.feasible else "white",
                                  label=_legend_text(item, budget, peak, rate, drawn.language)))
        axes.set_xlabel(word("throughput", drawn.language))
        axes.set_ylabel(word("peak_allocated", drawn.language))
        lines = _gate_lines(budget, evidence_of("baseline", verdicts), drawn.language)
        handles += _put_gates(axes, lines, drawn.language)
        put_frame(drawn, record, "title_throughput", word("bars", drawn.language))
        put_legend(drawn, handles)
        text = [opening(record, "title_throughput", drawn.language)]
        text += [_legend_text(item, budget, *_figures(row), drawn.language, one_line=True)
                 for row, item in zip(candidates, verdicts, strict=True)]
        text += [line[3] for line in lines]
    rows = [_table_row(row, item, budget) for row, item in zip(candidates, verdicts, strict=True)]
    return Drawing("memory_throughput", drawn.figure, "\n".join([*text, *([drawn.note] if drawn.note else [])]),
                   COLUMNS, rows)


def _figures(row: dict[str, Any]) -> tuple[float | None, float | None]:
    return finite_number(row.get("peak_memory_mb")), finite_number(row.get("samples_per_s"))


def _spread(row: dict[str, Any], key: str) -> tuple[float | None, float | None]:
    """Smallest and largest successful run, as the record's stability block has it."""
    bounds = read_table(row, "stability").get(key)
    low, high = bounds if isinstance(bounds, (list, tuple)) and len(bounds) == 2 else (None, None)
    return finite_number(low), finite_number(high)


def _put_point(axes: Axes, row: dict[str, Any], look: Any, peak: float, rate: float, filled: bool) -> None:
    for bounds, at in ((_spread(row, "throughput_range_samples_per_s"), "x"),
                       (_spread(row, "peak_memory_range_mb"), "y")):
        if None not in bounds:
            values = (bounds, (peak, peak)) if at == "x" else ((rate, rate), bounds)
            axes.plot(*values, color=look.colour, linewidth=1.4, marker="|" if at == "x" else "_", ms=7, zorder=3)
    for run in list_rows(row, "runs"):
        run_peak, run_rate = _figures(run)
        if run.get("status") == "ok" and run_peak is not None and run_rate is not None:
            axes.plot(run_rate, run_peak, ".", color=look.colour, alpha=0.55, ms=5, zorder=4)
    axes.plot(rate, peak, look.marker, color=look.colour, mfc=look.colour if filled else "white", mew=1.8, ms=10,
              zorder=5)


def _legend_text(item: Verdict, budget: dict[str, Any], peak: float | None, rate: float | None, language: str,
                 one_line: bool = False) -> str:
    figures = [format_mib(peak)] if peak is not None else []
    figures += [word("rate", language, rate)] if rate is not None else []
    verdict = word(verdict_key(item, budget), language)
    if one_line:
        return f"{item.name}: {', '.join([*figures, verdict])}"
    return f"{item.name}: {', '.join(figures)}\n{verdict}" if figures else f"{item.name}\n{verdict}"


def _gate_lines(budget: dict[str, Any], baseline: Verdict | None, language: str) -> list[tuple[str, float, str, str]]:
    """Axis, place, line style and label of every gate that can be drawn."""
    lines = []
    cap, floor = finite_number(budget.get("memory_cap_mb")), finite_number(budget.get("min_samples_per_s"))
    if cap is not None:
        lines.append(("y", cap, "solid", word("memory_cap", language, cap)))
    if floor:
        lines.append(("x", floor, "solid", word("throughput_floor", language, floor)))
    if baseline and baseline.peak_memory_mb is not None and baseline.samples_per_s is not None:
        saving, ratio = min_memory_saving_mb(budget), min_throughput_ratio(budget)
        if saving is not None:
            lines.append(("y", baseline.peak_memory_mb - saving, "dashed", word("min_saving", language, saving)))
        if ratio is not None:
            lines.append(("x", baseline.samples_per_s * ratio, "dashed", word("min_ratio", language, ratio)))
    return lines


def _put_gates(axes: Axes, lines: list[tuple[str, float, str, str]], language: str) -> list[Any]:
    """Draw the gates that lie within reach of the points, shade where all are met; returns legend handles."""
    low, high = _window(axes.dataLim.intervaly, [place for axis, place, *_ in lines if axis == "y"])
    right = max([axes.dataLim.intervalx[1] if axes.has_data() else 0.0,
                 *(place for axis, place, *_ in lines if axis == "x")], default=1.0)
    right = 1.12 * right if right > 0 else 1.0
    handles, ceiling, left = [], high, 0.0
    for axis, place, style, label in lines:
        ceiling, left = (min(ceiling, place), left) if axis == "y" else (ceiling, max(left, place))
        visible = low <= place <= high if axis == "y" else True
        if visible:
            draw = axes.axhline if axis == "y" else axes.axvline
            draw(place, color=GATE_COLOUR, linestyle=style, linewidth=1.3, zorder=1)
        handles.append(Line2D([], [], color=GATE_COLOUR, linestyle=style, linewidth=1.3,
                              marker="_" if axis == "y" else "|", ms=11,
                              label=label if visible else word("off_scale", language, label)))
    if lines and ceiling > low and right > left:
        axes.add_patch(Rectangle((left, low), right - left, ceiling - low, color=GOOD_COLOUR, alpha=0.10, zorder=0,
                                 linewidth=0))
        handles.append(Patch(color=GOOD_COLOUR, alpha=0.18, linewidth=0, label=word("all_gates", language)))
    axes.set_xlim(0, right)
    axes.set_ylim(low, high)
    return handles


def _window(data: Any, places: list[float]) -> tuple[float, float]:
    """Limits of the memory axis: all points, and those lines that do not squeeze them together."""
    bottom, top = (float(data[0]), float(data[1])) if data[0] <= data[1] else (0.0, max([1.0, *places]))
    reach = max(top - bottom, 0.15 * top)
    for place in sorted(places):
        if bottom - reach <= place <= top + 1.5 * reach:
            bottom, top = min(bottom, place), max(top, place)
    pad = 0.08 * max(top - bottom, 0.1 * top, 1e-9)
    return max(0.0, bottom - pad), top + pad


def _table_row(row: dict[str, Any], item: Verdict, budget: dict[str, Any]) -> tuple[Any, ...]:
    peak, rate = _figures(row)
    return (item.name, item.status, peak, *_spread(row, "peak_memory_range_mb"), rate,
            *_spread(row, "throughput_range_samples_per_s"), item.memory_saving_mb, item.throughput_ratio,
            finite_number(row.get("eval_loss")), item.path, word(verdict_key(item, budget)))
