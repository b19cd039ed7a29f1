"""Figures of a prediction: what each peak is made of, a step's timeline, predicted against measured.

Each takes plain data (of `Estimate.record`, `Estimate.timelines` or `compare_readout`) and needs no
torch. `plot_categories` speaks both languages; the labels of the other two are English.
"""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Patch

from memstrat.plots.drawing import Drawing, canvas, looks_of
from memstrat.units import bytes_to_mib, format_bytes
from memstrat.wording import word

PHASES = ("forward", "backward", "optimizer")
MAX_POINTS = 400
"""Points a timeline is drawn from; each is the highest of its stretch of events."""
_CATEGORIES = {  # Okabe and Ito's colours; the hatch says the same
    "parameters": ("#999999", ""), "gradients": ("#E69F00", "//"), "optimizer_state": ("#56B4E9", "\\\\"),
    "optimizer_temporaries": ("#0072B2", "xx"), "saved_activations": ("#009E73", ".."),
    "logits_and_loss": ("#D55E00", "++"), "other_temporaries": ("#CC79A7", "oo")}
_PHASES_ZH = {"forward": "前向", "backward": "反向", "optimizer": "优化器"}
_CHINESE = {
    "parameters": "参数", "gradients": "梯度", "optimizer_state": "优化器状态", "optimizer_temporaries": "优化器临时量",
    "saved_activations": "保存的激活", "logits_and_loss": "logits 与损失", "other_temporaries": "其他临时量"}


def plot_categories(record: dict[str, Any], language: str = "en") -> Drawing:
    """Stacked bars (MiB): the peak of every phase of every strategy by kind of memory; the step's peak is marked.

    Args:
        record: of `Estimate.record`.
        language: en or zh; English with a note where no font has Chinese characters.
    """
    columns = ("strategy", "phase", "is_peak", "peak_allocated_mib", *(f"{name}_mib" for name in _CATEGORIES))
    with canvas(language) as drawn:
        title = {"en": "What the predicted peaks are made of", "zh": "预测的峰值由什么组成"}[drawn.language]
        remark = {"en": "▼ the phase that sets the peak.", "zh": "▼ 决定峰值的阶段。"}[drawn.language]
        axes = drawn.figure.subplots()
        rows, text, ticks = [], [f"{title}. {_task(record)}"], []
        for place, strategy in enumerate(record["strategies"]):
            for number, phase in enumerate(PHASES):
                found, at = strategy["phases"][phase], place * (len(PHASES) + 1) + number
                label = _PHASES_ZH[phase] if drawn.language == "zh" else phase
                ticks.append((at, f"{label}\n{strategy['name']}" if number == 1 else label))
                _stack(axes, at, found["categories_at_peak"])
                is_peak = phase == strategy["peak_phase"]
                peak = bytes_to_mib(found["peak_allocated_bytes"])
                axes.annotate(f"{'▼ ' if is_peak else ''}{peak:,.0f}", (at, peak), (0, 4), ha="center",
                              textcoords="offset points", fontsize=8.5, weight="bold" if is_peak else "normal")
                split = [bytes_to_mib(found["categories_at_peak"][name]) for name in _CATEGORIES]
                rows.append((strategy["name"], phase, is_peak, peak, *split))
            text.append(f"{strategy['name']}: peak {format_bytes(strategy['peak_allocated_bytes'])} in "
                        f"{strategy['peak_phase']}, of it {_parts(strategy['categories_at_peak'])}.")
        axes.set_xticks([at for at, _ in ticks], [label for _, label in ticks])
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(word("peak_allocated", drawn.language))
        _frame(drawn, axes, title, record, f"{remark} {drawn.note}".strip())
        _category_legend(drawn, drawn.language)
    return Drawing("categories", drawn.figure, "\n".join(text), columns, rows)


def plot_timeline(record: dict[str, Any]) -> Drawing:
    """Live bytes (MiB) through one step by kind of memory, a panel a strategy.

    Args:
        record: of `Estimate.record`, with `timelines` beside it: strategy -> list of points with `phase`,
            `num_bytes` and `categories`.
    """
    columns = ("strategy", "point", "phase", "allocated_mib")
    rows: list[tuple[Any, ...]] = []
    text = [f"Predicted memory through one step. {_task(record)}"]
    timelines = record["timelines"]
    with canvas("en", (10.0, 1.2 + 2.0 * len(timelines))) as drawn:
        panels = drawn.figure.subplots(len(timelines), 1, squeeze=False, sharey=True)[:, 0]
        for axes, (name, events) in zip(panels, timelines.items(), strict=True):
            points = _thin(events)
            layers = [[bytes_to_mib(point["categories"][key]) for point in points] for key in _CATEGORIES]
            axes.stackplot(range(len(points)), layers, colors=[colour for colour, _ in _CATEGORIES.values()],
                           linewidth=0)
            peak = max(range(len(points)), key=lambda at: points[at]["num_bytes"])
            axes.plot([peak], [bytes_to_mib(points[peak]["num_bytes"])], "v", color="#000000", ms=8)
            for at, phase in _phase_starts(points):
                axes.axvline(at, color="#000000", linewidth=0.8, linestyle="dotted")
                axes.annotate(phase, (at, 1), (3, -10), xycoords=("data", "axes fraction"),
                              textcoords="offset points", fontsize=8.5)
            axes.set_ylabel(f"{name}\n(MiB)")
            axes.set_ylim(0, 1.2 * bytes_to_mib(max(item["num_bytes"] for item in points)))
            axes.set_xticks([])
            rows += [(name, at, point["phase"], bytes_to_mib(point["num_bytes"])) for at, point in enumerate(points)]
            text.append(f"{name}: peak {format_bytes(points[peak]['num_bytes'])} in {points[peak]['phase']}.")
        panels[-1].set_xlabel("allocations and releases, in order")
        _frame(drawn, panels[0], "Predicted memory through one step", record, "▼ the peak.")
        _category_legend(drawn)
    return Drawing("timeline", drawn.figure, "\n".join(text), columns, rows)


def plot_comparison(result: dict[str, Any]) -> Drawing:
    """Measured peaks against predicted ones (MiB), with the 5 % band outside which a peak is implausible.

    Args:
        result: of `memstrat.estimate.compare.compare_readout`.
    """
    columns = ("kind", "seq_len", "strategy", "measured_mib", "predicted_mib", "difference_pct", "verdict")
    rows = [(row["kind"], row["seq_len"], row["name"], row["measured_mib"], row["predicted_mib"],
             row["difference_pct"], row["verdict"]) for row in result["rows"]]
    known = [row for row in result["rows"] if row["measured_mib"] is not None]
    looks = looks_of([row["name"] for row in known])
    text = [f"Predicted against measured peak allocated, {result['label']} ({result['memory_source']})."]
    with canvas("en", (7.4, 5.6)) as drawn:
        axes = drawn.figure.subplots()
        most = max((max(row["measured_mib"], row["predicted_mib"]) for row in known), default=1.0)
        least = min((min(row["measured_mib"], row["predicted_mib"]) for row in known), default=0.0)
        ends = [least * 0.95, most * 1.05]
        axes.plot(ends, ends, color="#444444", linewidth=1.0)
        axes.fill_between(ends, [end * 0.95 for end in ends], [end * 1.05 for end in ends], color="#DDDDDD",
                          linewidth=0, zorder=0)
        for name in dict.fromkeys(row["name"] for row in known):
            points = [row for row in known if row["name"] == name]
            axes.plot([row["measured_mib"] for row in points], [row["predicted_mib"] for row in points],
                      linestyle="none", marker=looks[name].marker, color=looks[name].colour, ms=9, label=name)
        for row in known:
            text.append(f"{row['kind']} {row['name']} at {row['seq_len']}: measured {row['measured_mib']:,.1f} MiB, "
                        f"predicted {row['predicted_mib']:,.1f} MiB ({row['difference_pct']:+.2f} %), "
                        f"{row['verdict']}.")
        axes.set_xlabel("measured peak allocated (MiB)")
        axes.set_ylabel("predicted peak allocated (MiB)")
        axes.set_title(f"Predicted against measured: {result['label']}", loc="left", weight="bold")
        drawn.figure.legend(loc="outside right upper", frameon=False)
        drawn.figure.supxlabel("Grey band: within 5 % of the measured peak.", x=0.012, ha="left", fontsize=9.5)
    return Drawing("comparison", drawn.figure, "\n".join(text), columns, rows)


def _thin(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most `MAX_POINTS` of a timeline's events, in order: the highest of each stretch within one phase."""
    stretch = -(-len(events) // MAX_POINTS)
    points, begin = [], 0
    while begin < len(events):
        end = begin
        while end < min(begin + stretch, len(events)) and events[end]["phase"] == events[begin]["phase"]:
            end += 1
        points.append(max(events[begin:end], key=lambda event: event["num_bytes"]))
        begin = end
    return points


def _stack(axes: Any, at: float, split: dict[str, int]) -> None:
    bottom = 0.0
    for name, (colour, hatch) in _CATEGORIES.items():
        height = bytes_to_mib(split[name])
        axes.bar(at, height, 0.9, bottom=bottom, color=colour, hatch=hatch, edgecolor="#FFFFFF", linewidth=0.5)
        bottom += height


def _phase_starts(points: list[dict[str, Any]]) -> list[tuple[int, str]]:
    starts, current = [], ""
    for at, point in enumerate(points):
        if point["phase"] and point["phase"] != current:
            starts.append((at, point["phase"]))
        current = point["phase"]
    return starts


def _parts(split: dict[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {format_bytes(split[name], 0)}" for name in _CATEGORIES if split[name])


def _task(record: dict[str, Any]) -> str:
    workload = record["workload"]
    return (f"{workload['model_id']}, {workload['micro_batch']} x {workload['seq_len']} tokens, "
            f"{workload['dtype_mode']}, {workload['optimizer']['name']}, loss head {workload['loss_head']}; "
            f"predicted for {record['assumptions']['device']}, not measured.")


def _frame(drawn: Any, axes: Any, title: str, record: dict[str, Any], remark: str) -> None:
    axes.set_title(title, loc="left", weight="bold")
    drawn.figure.supxlabel(f"{_task(record)} {remark}", x=0.012, ha="left", fontsize=8.5)


def _category_legend(drawn: Any, language: str = "en") -> None:
    handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="#FFFFFF",
                     label=_CHINESE[name] if language == "zh" else name.replace("_", " "))
               for name, (colour, hatch) in _CATEGORIES.items()]
    drawn.figure.legend(handles=handles[::-1], loc="outside right upper", frameon=False)
