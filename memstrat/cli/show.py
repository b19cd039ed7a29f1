"""`show` and `plot`: read records, measure nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from memstrat.readout import Readout

Label = Annotated[str | None, typer.Option("--label", help="Label of the records.")]
RecordFile = Annotated[Path | None, typer.Argument(help="A G0 or G1 record made elsewhere.")]
ResultsDir = Annotated[Path | None, typer.Option("--results-dir", help="Where the records lie.")]


def show(
    file: RecordFile = None, label: Label = None, results_dir: ResultsDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON.")] = False,
) -> None:
    """Show a label's candidates, gates and decision as tables, also from records made elsewhere."""
    readout = _read(file, label, results_dir)
    if as_json:
        print(json.dumps(readout.as_dict(), indent=2, ensure_ascii=False))
        return
    from memstrat.cli.render import print_readout

    print_readout(readout)


def plot(
    file: RecordFile = None, label: Label = None, results_dir: ResultsDir = None,
    out: Annotated[Path | None, typer.Option(
        "--out", help="Folder for the figures; figures/ beside the records if not given.")] = None,
    language: Annotated[str, typer.Option("--language", help="en or zh.")] = "en",
) -> None:
    """Draw a label's records: PNG and SVG, a text alternative and the plotted table beside them."""
    from memstrat.plots import plot_label

    readout = _read(file, label, results_dir)
    for path in plot_label(readout, out or readout.folder / "figures", language):
        print(path)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(show)
    app.command()(plot)


def _read(file: Path | None, label: str | None, results_dir: Path | None) -> Readout:
    from memstrat.readout import read_file, read_label

    if (file is None) == (label is None):
        raise typer.BadParameter("give either --label or a record file")
    return read_file(file) if file else read_label(label or "", results_dir)
