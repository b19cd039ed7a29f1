"""Figures from records only: nothing here measures, and nothing needs torch.

Each function takes a record as read from JSON and returns a `Drawing`: the figure, the same in words,
and the plotted table. Not covered: predictions (see `memstrat.estimate`).
"""

from __future__ import annotations

from pathlib import Path

from memstrat.plots.drawing import Drawing
from memstrat.plots.ladder import plot_ladder
from memstrat.plots.phases import has_phases, plot_phases
from memstrat.plots.strategies import plot_memory_throughput
from memstrat.readout import Readout

__all__ = ["Drawing", "plot_label", "plot_ladder", "plot_memory_throughput", "plot_phases"]


def plot_label(readout: Readout, folder: str | Path, language: str = "en") -> list[Path]:
    """Draw all that a label's records allow, and save each figure with its text and table.

    Returns:
        The paths: PNG, SVG, TXT, CSV and MD of each figure, named `<label>_<figure>`, with `_zh` behind
        it for Chinese labels.

    Raises:
        UnknownNameError: another language. StorageError: the folder cannot be written.
    """
    drawings = []
    if readout.g0:
        drawings.append(plot_memory_throughput(readout.g0, language))
        if has_phases(readout.g0):
            drawings.append(plot_phases(readout.g0, language))
    if readout.g1:
        drawings.append(plot_ladder(readout.g1, language))
    suffix = "" if language == "en" else f"_{language}"
    return [path for drawing in drawings
            for path in drawing.save(folder, f"{readout.label}_{drawing.name}{suffix}")]
