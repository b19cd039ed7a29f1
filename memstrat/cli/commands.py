"""One command a stage."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

from memstrat.cli.options import EXPERIMENT, split_lists, takes

STAGE_FLAGS = ("label", *EXPERIMENT, "results_dir", "json")


@takes(*STAGE_FLAGS)
def baseline(**flags: Any) -> None:
    """Measure the workload without any strategy; writes the report and its manifest."""
    run_stage("baseline", flags)


@takes(*STAGE_FLAGS, optional=("label",))
def prepare(**flags: Any) -> None:
    """Say what this machine, folder and label offer, and what is missing. Writes nothing."""
    run_stage("prepare", flags)


@takes("label", *EXPERIMENT, "manifest", "results_dir", "json")
def g0(**flags: Any) -> None:
    """Measure every strategy on the fixed workload, repeats interleaved."""
    run_stage("g0", flags)


@takes(*STAGE_FLAGS)
def g1(**flags: Any) -> None:
    """Climb the ladder of lengths under SGD, as far as memory safely allows."""
    run_stage("g1", flags)


@takes("label", "results_dir", "json")
def review(**flags: Any) -> None:
    """Show what is recorded under a label and whether it can be decided. Writes nothing."""
    run_stage("review", flags)


@takes("label", "results_dir", "json")
def close(**flags: Any) -> None:
    """Decide from the records alone, and write the decision."""
    run_stage("close", flags)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    for command in (baseline, prepare, g0, g1, review, close):
        app.command()(command)


def run_stage(stage: str, flags: dict[str, Any]) -> None:
    """Call the stage and print its result; notes and progress go to stderr."""
    from memstrat import stages

    flags = split_lists(flags)
    as_json = flags.pop("json")
    arguments = {key: value for key, value in flags.items() if value is not None}
    if stage not in ("review", "close"):
        arguments["say"] = note
    result = getattr(stages, stage)(**arguments)
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    from memstrat.cli.render import print_stage

    print_stage(stage, result)
    if stage == "g0":
        _print_advice(result, arguments.get("model"))


def note(text: str) -> None:
    """A line for people, beside the result."""
    print(text, file=sys.stderr)


def _print_advice(record: dict[str, Any], model: str | None) -> None:
    """What sets the peaks and which lever would move them, predicted; nothing where the model cannot be traced."""
    from memstrat.errors import MemstratError
    from memstrat.estimate.compare import advise_record

    try:
        print(*advise_record(record, model=model), sep="\n")
    except MemstratError as error:
        note(f"no advice: {error}")
