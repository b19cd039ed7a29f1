"""`demo`: the whole experiment on whatever device is there, with nothing to decide and no download."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

DEMO_PRESETS = {"cpu": "tiny", "cuda": "pressure"}


def demo(
    device: Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")] = "auto",
    results_dir: Annotated[Path, typer.Option("--results-dir", help="Where the records go.")] = Path("runs"),
) -> None:
    """Run every stage under a fresh label, print one table, and say where records and figure lie."""
    from memstrat import processes

    processes.start()  # loads torch on the other core while this process loads it here
    from memstrat import stages
    from memstrat.cli.commands import note
    from memstrat.cli.render import print_readout
    from memstrat.environment import resolve_device
    from memstrat.plots import plot_label
    from memstrat.readout import read_label

    resolved = resolve_device(device)
    label = _fresh_label(results_dir)
    experiment = {"preset": DEMO_PRESETS[resolved], "weights": "random", "device": resolved, "say": note}
    note(f"demo: preset {experiment['preset']} on {resolved}, label {label}")
    stages.prepare(label, results_dir=results_dir, **experiment)
    stages.g0(label, results_dir=results_dir, **experiment)
    stages.g1(label, results_dir=results_dir, **experiment)
    stages.close(label, results_dir=results_dir)
    readout = read_label(label, results_dir)
    print_readout(readout)
    figures = plot_label(readout, results_dir / "figures")
    print("records:", *(f"  {results_dir / Path(path).name}" for path in readout.paths.values()), sep="\n")
    print("figures:", *(f"  {path}" for path in figures if path.suffix == ".png"), sep="\n")


def add_to(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command()(demo)


def _fresh_label(results_dir: Path) -> str:
    """`demo-<UTC>`, with a counter where a demo of this very second is there already."""
    label = f"demo-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    taken = {path.stem for path in results_dir.glob("*demo-*")} if results_dir.is_dir() else set()
    names = (label, *(f"{label}-{number}" for number in range(2, 100)))
    return next(name for name in names if not any(stem.endswith(f"_{name}") for stem in taken))
