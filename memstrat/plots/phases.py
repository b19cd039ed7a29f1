"""Peak of each phase of a step: which phase sets a strategy's peak, and which a strategy lowers."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from memstrat.errors import RecordError
from memstrat.evidence import finite_number
from memstrat.plots.drawing import Drawing, canvas
from memstrat.plots.frame import opening, put_frame, put_legend
from memstrat.readout import list_rows, read_table
from memstrat.units import bytes_to_mib, format_bytes
from memstrat.wording import word

PHASES = ("forward", "backward", "optimizer")
COLUMNS = ("strategy", *(f"{phase}_peak_mib" for phase in PHASES), "alive_after_forward_mib", "peak_phase")
_COLOURS = {"forward": ("#56B4E9", ""), "backward": ("#E69F00", "//"), "optimizer": ("#BBBBBB", "..")}


def has_phases(record: dict[str, Any]) -> bool:
    """Whether any run of the record tells its phases apart."""
    return any(_peaks(row) for row in list_rows(record, "candidates"))


def plot_phases(record: dict[str, Any], language: str = "en") -> Drawing:
    """Peak (MiB) of forward, backward and optimizer step for each strategy, and what forward leaves alive.

    From the probe step of each run, the largest of all repeats: the hooks of the probe keep the figures a
    little apart from the peaks of the timed steps.

    Args:
        record: a G0 record as read from JSON, or one length of a G1 record with the record's `run_mode`.
        language: en or zh; English with a note where no font has Chinese characters.

    Raises:
        RecordError: no run tells its phases apart. UnknownNameError: another language.
    """
    rows = [(str(row.get("name")), _peaks(row), _alive(row)) for row in list_rows(record, "candidates")]
    rows = [row for row in rows if row[1]]
    if not rows:
        raise RecordError("phases: must be recorded for at least one run, got none. Measure with memstrat g0.")
    with canvas(language) as drawn:
        axes, text = drawn.figure.subplots(), [opening(record, "title_phases", drawn.language)]
        top = max(max(peaks.values()) for _, peaks, _ in rows)
        for place, (name, peaks, alive) in enumerate(rows):
            for offset, phase in zip((-0.27, 0.0, 0.27), PHASES, strict=True):
                if phase not in peaks:
                    continue
                colour, hatch = _COLOURS[phase]
                sets_peak = peaks[phase] == max(peaks.values())
                axes.bar(place + offset, bytes_to_mib(peaks[phase]), 0.25, color=colour, hatch=hatch,
                         edgecolor="#000000" if sets_peak else "#777777", linewidth=2.0 if sets_peak else 0.6)
                axes.annotate(f"{bytes_to_mib(peaks[phase]):,.0f}" if bytes_to_mib(top) >= 1000
                              else f"{bytes_to_mib(peaks[phase]):,.1f}",
                              (place + offset, bytes_to_mib(peaks[phase])), (0, 4), textcoords="offset points",
                              ha="center", fontsize=9, weight="bold" if sets_peak else "normal")
            if alive is not None:
                axes.plot([place - 0.4, place - 0.14], [bytes_to_mib(alive)] * 2, color="#000000", linewidth=2.4)
            text.append(_describe(name, peaks, alive, drawn.language))
        axes.set_xticks(range(len(rows)), [name for name, *_ in rows])
        axes.grid(visible=False, axis="x")
        axes.set_ylim(0, 1.12 * bytes_to_mib(top))
        axes.set_ylabel(word("peak_allocated", drawn.language))
        put_frame(drawn, record, "title_phases", word("probe_step", drawn.language))
        handles: list[Any] = [Patch(facecolor=colour, hatch=hatch, edgecolor="#777777",
                                    label=word(phase, drawn.language))
                              for phase, (colour, hatch) in _COLOURS.items()]
        if any(alive is not None for *_, alive in rows):
            handles.append(Line2D([], [], color="#000000", linewidth=2.4, label=word("after_forward", drawn.language)))
        put_legend(drawn, handles)
    table = [(name, *(bytes_to_mib(peaks[phase]) if phase in peaks else None for phase in PHASES),
              None if alive is None else bytes_to_mib(alive), max(peaks, key=peaks.get)) for name, peaks, alive in rows]
    return Drawing("phases", drawn.figure, "\n".join([*text, *([drawn.note] if drawn.note else [])]), COLUMNS, table)


def _peaks(row: dict[str, Any]) -> dict[str, float]:
    """Largest peak of each phase over the runs, in bytes; empty where no run tells phases apart."""
    found: dict[str, float] = {}
    for run in list_rows(row, "runs"):
        phases = read_table(run, "phases") if run.get("status") == "ok" else {}
        for phase in PHASES:
            peak = finite_number(read_table(phases, phase).get("peak_allocated_bytes"))
            if peak is not None:
                found[phase] = max(peak, found.get(phase, 0.0))
    return found


def _alive(row: dict[str, Any]) -> float | None:
    values = [finite_number(run.get("resident_after_forward_bytes")) for run in list_rows(row, "runs")]
    return max((value for value in values if value is not None), default=None)


def _describe(name: str, peaks: dict[str, float], alive: float | None, language: str) -> str:
    parts = [f"{word(phase, language)} {format_bytes(peak)}" for phase, peak in peaks.items()]
    parts += [f"{word('after_forward', language)} {format_bytes(alive)}"] if alive is not None else []
    return f"{name}: {', '.join(parts)}"
