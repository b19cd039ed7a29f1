"""Peak allocated against sequence length: how far each strategy carries, and where the ladder stopped."""

from __future__ import annotations

from typing import Any

from matplotlib.lines import Line2D

from memstrat.errors import RecordError
from memstrat.evidence import finite_number
from memstrat.plots.drawing import GATE_COLOUR, WARNING_COLOUR, Drawing, canvas, looks_of
from memstrat.plots.frame import opening, put_frame, put_legend
from memstrat.readout import list_rows, read_table
from memstrat.units import format_mib
from memstrat.wording import word

COLUMNS = ("seq_len", "strategy", "status", "peak_allocated_mib", "memory_saving_mib", "throughput_ratio", "reason")
_REFUSED = "refused"


def plot_ladder(record: dict[str, Any], language: str = "en") -> Drawing:
    """Each strategy's peak (MiB) at every length of a G1 record; refused lengths are marked.

    G1 trains with SGD without momentum: its peaks are lower than those of full training.

    Args:
        record: a G1 record as read from JSON.
        language: en or zh; English with a note where no font has Chinese characters.

    Raises:
        RecordError: the record holds no lengths. UnknownNameError: another language.
    """
    lengths = {item["seq_len"]: list_rows(item, "candidates") for item in list_rows(record, "length_records")
               if finite_number(item.get("seq_len"))}
    if not lengths:
        raise RecordError("length_records: must hold at least one length, got none. "
                          "Check that the file is a g1 record.")
    names = list(dict.fromkeys(str(row.get("name")) for rows in lengths.values() for row in rows))
    refused = [check for check in list_rows(read_table(record, "admission"), "checks")
               if check.get("status") == "blocked" and finite_number(check.get("projected_peak_mb")) is not None]
    looks = looks_of(names)
    with canvas(language) as drawn:
        axes, handles, text = drawn.figure.subplots(), [], [opening(record, "title_ladder", drawn.language)]
        for name in names:
            look, rows = looks[name], [(seq_len, row) for seq_len, candidates in lengths.items() for row in candidates
                                       if row.get("name") == name]
            points = [(seq_len, finite_number(row.get("peak_memory_mb"))) for seq_len, row in rows]
            points = [(seq_len, peak) for seq_len, peak in points if peak is not None]
            axes.plot([seq_len for seq_len, _ in points], [peak for _, peak in points], color=look.colour,
                      marker=look.marker, linestyle=look.dashes, linewidth=1.8, ms=8, zorder=3)
            failures = [word("not_measured_at", drawn.language, name, seq_len, _status(row, drawn.language))
                        for seq_len, row in rows if row.get("status") != "ok"]
            label = "\n".join([name, *(line.removeprefix(name).lstrip(" ,，") for line in failures)])
            handles.append(Line2D([], [], color=look.colour, marker=look.marker, linestyle=look.dashes, label=label))
            peaks = ", ".join(f"{seq_len}: {format_mib(peak)}" for seq_len, peak in points)
            text += [f"{name}: {peaks or '-'}", *failures]
        handles += [_mark_refused(axes, check, drawn.language) for check in refused]
        text += [_refused_text(check, drawn.language) for check in refused]
        cap = finite_number(read_table(record, "budget").get("memory_cap_mb"))
        _set_limits(axes, [*lengths, *(check["seq_len"] for check in refused)], cap)
        if cap is not None:
            inside = cap <= axes.get_ylim()[1]
            label = word("memory_cap", drawn.language, cap)
            if inside:
                axes.axhline(cap, color=GATE_COLOUR, linewidth=1.3, zorder=1)
            handles.append(Line2D([], [], color=GATE_COLOUR, linewidth=1.3,
                                  label=label if inside else word("off_scale", drawn.language, label)))
            text.append(label)
        for number, name in enumerate([name for name in names if not _measured_everywhere(lengths, name)]):
            for seq_len, candidates in lengths.items():  # on the upper edge: above whatever was measured
                if any(row.get("name") == name and row.get("status") != "ok" for row in candidates):
                    axes.plot(seq_len, 1.0 - 0.05 * number, looks[name].marker, color=looks[name].colour, mfc="white",
                              ms=9, mew=1.8, transform=axes.get_xaxis_transform(), clip_on=False, zorder=4)
        axes.set_xlabel(word("seq_len", drawn.language))
        axes.set_ylabel(word("peak_allocated", drawn.language))
        put_frame(drawn, record, "title_ladder", word("isolation", drawn.language))
        put_legend(drawn, handles)
    rows = [_table_row(record, seq_len, row) for seq_len, candidates in lengths.items() for row in candidates]
    rows += [(check["seq_len"], None, _REFUSED, None, None, None, _refused_text(check, "en"))
             for check in refused]
    return Drawing("ladder", drawn.figure, "\n".join([*text, *([drawn.note] if drawn.note else [])]), COLUMNS, rows)


def _status(row: dict[str, Any], language: str) -> str:
    status = row.get("status")
    return word(status, language) if status in ("oom", "failed", "partial_oom") else str(status)


def _measured_everywhere(lengths: dict[int, list[dict[str, Any]]], name: str) -> bool:
    return all(row.get("status") == "ok" for rows in lengths.values() for row in rows if row.get("name") == name)


def _refused_text(check: dict[str, Any], language: str) -> str:
    limit = finite_number(check.get("safe_process_limit_mb"))
    return word("refused", language, check["seq_len"], check["projected_peak_mb"], 0.0 if limit is None else limit)


def _mark_refused(axes: Any, check: dict[str, Any], language: str) -> Line2D:
    """A cross at the projected peak, on a line that leads down to the refused length."""
    place = (check["seq_len"], check["projected_peak_mb"])
    axes.plot([place[0], place[0]], [0, place[1]], color=WARNING_COLOUR, linewidth=1.0, linestyle=(0, (2, 3)), zorder=2)
    axes.plot(*place, "x", color=WARNING_COLOUR, ms=11, mew=2.6, zorder=5)
    return Line2D([], [], color=WARNING_COLOUR, linestyle=(0, (2, 3)), linewidth=1.0, marker="x", ms=10, mew=2.4,
                  label=_refused_text(check, language).replace(": ", ":\n", 1).replace("：", "：\n", 1))


def _set_limits(axes: Any, seq_lens: list[int], cap: float | None) -> None:
    top = float(axes.dataLim.intervaly[1]) if axes.has_data() and axes.dataLim.intervaly[1] > 0 else cap or 1.0
    if cap is not None and cap <= 1.6 * top:
        top = max(top, cap)
    axes.set_ylim(0, 1.1 * top)
    span = max(seq_lens) - min(seq_lens) or max(seq_lens)
    axes.set_xlim(min(seq_lens) - 0.06 * span, max(seq_lens) + 0.06 * span)
    axes.set_xticks(sorted(set(seq_lens)), [f"{seq_len:,}" for seq_len in sorted(set(seq_lens))])


def _table_row(record: dict[str, Any], seq_len: int, row: dict[str, Any]) -> tuple[Any, ...]:
    """One strategy at one length, with what the record's own summary says of it."""
    per_length = list_rows(read_table(record, "summary"), "per_length")
    strategies = next((item.get("strategies") for item in per_length if item.get("seq_len") == seq_len), None) or {}
    judged = strategies.get(row.get("name")) or {}
    return (seq_len, row.get("name"), row.get("status"), finite_number(row.get("peak_memory_mb")),
            judged.get("memory_saving_mb"), judged.get("throughput_ratio"), judged.get("reason"))
