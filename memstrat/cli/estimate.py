"""`estimate` and `compare`: predict without a device, and hold predictions against records."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from memstrat.estimate.run import Answer

ASSUMED, ASK = "Assumptions", "Questions"

Text, Flag = str | None, bool | None


def estimate(
    preset: Annotated[Text, typer.Option("--preset", help="Bundled experiment: tiny, smollm2 or pressure.")] = None,
    workload: Annotated[Path | None, typer.Option("--workload", help="Your own experiment, TOML or JSON.")] = None,
    model: Annotated[Text, typer.Option("--model", help="Hub id, local folder or config.json.")] = None,
    model_source: Annotated[Text, typer.Option(
        "--model-source", help="auto, local, huggingface or modelscope.")] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens.")] = None,
    micro_batch: Annotated[int | None, typer.Option("--micro-batch", help="Samples a step.")] = None,
    optimizer: Annotated[Text, typer.Option("--optimizer", help="adamw or sgd.")] = None,
    foreach: Annotated[Flag, typer.Option("--foreach/--no-foreach", help="On by default on CUDA.")] = None,
    fused: Annotated[Flag, typer.Option("--fused/--no-fused", help="The optimizer's fused kernel.")] = None,
    dtype_mode: Annotated[Text, typer.Option("--dtype-mode", help="fp32, or bf16 (autocast, fp32 weights).")] = None,
    loss_head: Annotated[Text, typer.Option("--loss-head", help="hf, or chunked cross-entropy.")] = None,
    attention: Annotated[Text, typer.Option(
        "--attention", help="auto (by dtype, grouped queries and capability), math, efficient or flash.")] = None,
    strategies: Annotated[Text, typer.Option("--strategies", help="Comma-separated.")] = None,
    device: Annotated[Text, typer.Option(
        "--device", rich_help_panel=ASSUMED,
        help="A card by name, such as 'RTX 3060' or A100-40GB; cpu predicts a CPU rehearsal's accounting.")] = None,
    device_memory: Annotated[Text, typer.Option(
        "--device-memory", rich_help_panel=ASSUMED, help="Total memory, such as 12GiB, or a card's name.")] = None,
    other_memory: Annotated[Text, typer.Option(
        "--other-memory", rich_help_panel=ASSUMED,
        help="What is not the allocator's: context, screen, other processes. Assumed by card if not given.")] = None,
    use_reentrant: Annotated[bool, typer.Option(
        "--use-reentrant", rich_help_panel=ASSUMED, help="Reentrant checkpointing, an older default.")] = False,
    cublas_workspace: Annotated[Text, typer.Option(
        "--cublas-workspace", rich_help_panel=ASSUMED, help="One handle's; by capability if not given.")] = None,
    ladder: Annotated[Text, typer.Option(
        "--ladder", rich_help_panel=ASK, help="Predict G1's table at these lengths, such as 1024,1536.")] = None,
    longest: Annotated[bool, typer.Option(
        "--longest", rich_help_panel=ASK, help="Search the longest sequence each strategy can train.")] = False,
    largest_batch: Annotated[bool, typer.Option(
        "--largest-batch", rich_help_panel=ASK, help="Search the largest micro-batch at this length.")] = False,
    plots: Annotated[Path | None, typer.Option("--plots", help="Draw peaks and timeline into a folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction as JSON.")] = False,
) -> None:
    """Predict what each strategy peaks at, and what sets it. No weights, no GPU, no download."""
    from memstrat.estimate import run

    experiment = run.load(preset, workload, {
        "model": model, "model_source": model_source, "seq_len": seq_len, "micro_batch": micro_batch,
        "optimizer": optimizer, "foreach": foreach, "fused": fused, "dtype_mode": dtype_mode, "loss_head": loss_head,
        "attention": attention, "strategies": strategies})
    target, settings = run.assume(device, device_memory, other_memory, cublas_workspace, use_reentrant)
    result = run.answer(experiment, target, settings, ladder=ladder, longest=longest, largest_batch=largest_batch,
                        report=_progress)
    paths = _draw(result, plots) if plots else []
    if as_json:
        print(json.dumps(result.record(), indent=2, ensure_ascii=False))
        return
    from memstrat.estimate.tables import print_answer

    print_answer(result)
    for path in paths:
        print(path)


def compare(
    file: Annotated[Path | None, typer.Argument(help="A G0 or G1 record made elsewhere.")] = None,
    label: Annotated[Text, typer.Option("--label", help="Label of the records.")] = None,
    results_dir: Annotated[Path | None, typer.Option("--results-dir", help="Where the records lie.")] = None,
    model: Annotated[Text, typer.Option("--model", help="The model's folder, if it was local.")] = None,
    other_memory: Annotated[Text, typer.Option("--other-memory", help="As for estimate.")] = None,
    plots: Annotated[Path | None, typer.Option("--plots", help="Draw the comparison into a folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Hold a G0 or G1 record against the prediction, strategy by strategy. Records are never altered."""
    from memstrat.estimate.compare import compare_readout
    from memstrat.readout import read_file, read_label

    if (file is None) == (label is None):
        raise typer.BadParameter("give either --label or a record file")
    readout = read_file(file) if file else read_label(label or "", results_dir)
    result = compare_readout(readout, model=model, other_memory=other_memory, report=_progress)
    paths: list[Any] = []
    if plots:
        from memstrat.plots.estimate import plot_comparison

        paths = plot_comparison(result).save(plots, f"{readout.label}_predicted")
    if as_json:
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return
    from memstrat.estimate.tables import print_comparison

    print_comparison(result)
    for path in paths:
        print(path)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command()(estimate)
    app.command()(compare)


def _draw(result: Answer, folder: Path) -> list[Path]:
    """Save the stacked bars and the timelines; returns the paths."""
    from memstrat.plots.estimate import plot_categories, plot_timeline

    record = result.estimate.record() | {"timelines": result.estimate.timelines()}
    drawings = [plot_categories(record), plot_timeline(record)]
    return [path for drawing in drawings for path in drawing.save(folder, f"estimate_{drawing.name}")]


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        print(f"tracing {what}", file=sys.stderr)
