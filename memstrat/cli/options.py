"""The command line's shared flags, written once and given to each command by name.

Values pass to `memstrat.stages` as they are: rules are checked there, so that the command line,
Python and a workload file refuse the same things with the same words.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

WORKLOAD, MEASURE, BUDGET = "Workload", "Measuring", "Budget"


def _option(kind: Any, *names: str, help: str, panel: str | None = None, required: bool = False,
            default: Any = None) -> tuple[Any, Any]:
    annotation = Annotated[kind, typer.Option(*names, help=help, rich_help_panel=panel)]
    return annotation, inspect.Parameter.empty if required else default


_Text, _Int, _Float, _Flag = str | None, int | None, float | None, bool | None

OPTIONS: dict[str, tuple[Any, Any]] = {
    "label": _option(str, "--label", help="Name of the records; each experiment has its own.", required=True),
    "preset": _option(_Text, "--preset", help="Bundled experiment: tiny, smollm2 or pressure.", panel=WORKLOAD),
    "workload": _option(Path | None, "--workload", panel=WORKLOAD,
                        help="Your own experiment, TOML or JSON in the form of the presets."),
    "device": _option(str, "--device", help="auto, cpu or cuda.", default="auto"),
    "model": _option(_Text, "--model", panel=WORKLOAD, help="Hub id, local folder or config.json."),
    "model_source": _option(_Text, "--model-source", panel=WORKLOAD, help="auto, local, huggingface or modelscope."),
    "weights": _option(_Text, "--weights", panel=WORKLOAD, help="pretrained, or random (seeded)."),
    "data": _option(_Text, "--data", panel=WORKLOAD, help="random, or the path of a text."),
    "dtype_mode": _option(_Text, "--dtype-mode", panel=WORKLOAD, help="fp32, or bf16 (autocast, fp32 weights)."),
    "seq_len": _option(_Int, "--seq-len", panel=WORKLOAD, help="Base length in tokens."),
    "micro_batch": _option(_Int, "--micro-batch", panel=WORKLOAD, help="Samples a step."),
    "loss_head": _option(_Text, "--loss-head", panel=WORKLOAD, help="hf (transformers' own) or chunked cross-entropy."),
    "optimizer": _option(_Text, "--optimizer", panel=WORKLOAD, help="adamw or sgd."),
    "foreach": _option(_Flag, "--foreach/--no-foreach", panel=WORKLOAD,
                       help="Update all parameters at once, with one more copy of them; torch's default if not given."),
    "fused": _option(_Flag, "--fused/--no-fused", panel=WORKLOAD, help="The optimizer's fused kernel."),
    "attention": _option(_Text, "--attention", panel=WORKLOAD, help="auto, math, efficient or flash."),
    "strategies": _option(_Text, "--strategies", panel=WORKLOAD, help="Comma-separated, baseline among them."),
    "warmup": _option(_Int, "--warmup", panel=MEASURE, help="Untimed steps first, at least 1."),
    "iters": _option(_Int, "--iters", panel=MEASURE, help="Timed steps a run."),
    "repeats": _option(_Int, "--repeats", panel=MEASURE, help="Runs a strategy, each in a fresh process."),
    "seed": _option(_Int, "--seed", panel=MEASURE, help="Seed of weights and data."),
    "ladder": _option(_Text, "--ladder", panel=MEASURE, help="Longer lengths for g1, such as 1024,1280."),
    "memory_cap_mb": _option(_Float, "--memory-cap-mb", panel=BUDGET, help="Peak allocated at most, in MiB."),
    "min_samples_per_s": _option(_Float, "--min-samples-per-s", panel=BUDGET, help="Throughput at least."),
    "min_memory_saving_mb": _option(_Float, "--min-memory-saving-mb", panel=BUDGET,
                                    help="Saving against the baseline worth having, in MiB."),
    "min_throughput_ratio": _option(_Float, "--min-throughput-ratio", panel=BUDGET,
                                    help="Throughput against the baseline at least."),
    "max_val_loss": _option(_Float, "--max-val-loss", panel=BUDGET,
                            help="Eval loss at most; the baseline's x 1.02 if not given."),
    "manifest": _option(Path | None, "--manifest", help="Another label's input manifest to rest on."),
    "results_dir": _option(Path | None, "--results-dir",
                           help="Where records lie; MEMSTRAT_RESULTS_DIR, else benchmarks/results of the checkout."),
    "json": _option(bool, "--json", help="Print the record as JSON instead of a table.", default=False),
}
EXPERIMENT = tuple(key for key in OPTIONS if key not in ("label", "manifest", "results_dir", "json"))


def takes(*names: str, optional: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command `def command(**flags)` these options; it receives them all by keyword.

    `optional` names those that this command does not require: None where they are not given.
    """
    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=OPTIONS[name][0],
                                        default=None if name in optional else OPTIONS[name][1]) for name in names]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {name: OPTIONS[name][0] for name in names}
        return command
    return decorate


def split_lists(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags with the comma-separated names as a list; the ladder is read where its rules are."""
    flags = dict(flags)
    if flags.get("strategies") is not None:
        flags["strategies"] = [name.strip() for name in flags["strategies"].split(",") if name.strip()]
    return flags
