"""One to three sentences on what sets the peaks and which lever would move them, computed.

Reads plain rows (an estimate's `strategies`, or measured ones in that form); the figure a lever would
give comes from `what_if`, which predicts the changed task. Does not weigh time or quality.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memstrat.estimate.core import Estimate, StrategyEstimate, predict_one
from memstrat.estimate.time_model import cost_of
from memstrat.estimate.trace import trace_strategy
from memstrat.units import bytes_to_mib
from memstrat.workload import Workload

WhatIf = Callable[[str, dict[str, Any]], tuple[int, str]]
"""Predict a strategy under changed workload fields: peak allocated (bytes) and the phase that sets it."""

PHASE_WORDS = {"forward": "forward", "backward": "backward", "optimizer": "the optimizer step"}
NOTABLE_SHARE = 0.15
"""A kind of memory below this share of the peak is not worth a sentence."""


def advise(estimate: Estimate) -> list[str]:
    """Advice on an estimate; traces one more step for the lever it names."""
    return advise_rows([item.record() for item in estimate.strategies], estimate.workload, what_if_of(estimate))


def advise_rows(rows: Sequence[dict[str, Any]], workload: Workload, what_if: WhatIf) -> list[str]:
    """Advice on rows with `name`, `peak_allocated_bytes`, `peak_phase` and `categories_at_peak`.

    Returns:
        What sets the peaks; the lever on the lowest of them, with its effect; what the best strategy saves.
    """
    if not rows:
        return []
    best = min(rows, key=lambda row: row["peak_allocated_bytes"])
    sentences = [_what_sets_the_peaks(rows), _lever(best, workload, what_if), _saving(rows, best)]
    return [sentence for sentence in sentences if sentence]


def what_if_of(estimate: Estimate) -> WhatIf:
    """Predictions of a changed task under the assumptions of an estimate."""
    def predicted(name: str, changes: dict[str, Any]) -> tuple[int, str]:
        trace = trace_strategy(estimate.workload.replace(**changes), name, estimate.settings)
        item = StrategyEstimate(name, predict_one(trace, estimate.settings), cost_of(trace), trace.kernels)
        return item.peak_allocated_bytes, item.peak_phase
    return predicted


def _what_sets_the_peaks(rows: Sequence[dict[str, Any]]) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["peak_phase"], []).append(row)
    parts = []
    for phase, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        peaks = [row["peak_allocated_bytes"] for row in members]
        low, high = _mib(min(peaks)), _mib(max(peaks))
        span = low if low == high else f"{low.removesuffix(' MiB')} to {high}"
        verb = "sets the peak" if not parts else "that"
        parts.append(f"{PHASE_WORDS[phase]} {verb} of {_join([row['name'] for row in members])} ({span})")
    text = ", ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _lever(row: dict[str, Any], workload: Workload, what_if: WhatIf) -> str:
    split, peak, name = row["categories_at_peak"], row["peak_allocated_bytes"], row["name"]
    temporaries, logits = split.get("optimizer_temporaries", 0), split.get("logits_and_loss", 0)
    if temporaries > NOTABLE_SHARE * peak:
        parameters = split["parameters"]
        if workload.optimizer.foreach is False:
            return f"The optimizer's temporaries take {_mib(temporaries)} of it."
        copies = (f"one more copy of the parameters ({_mib(temporaries)})" if 0.9 < temporaries / parameters < 1.1
                  else f"{_mib(temporaries)} more")
        optimizer = workload.optimizer.model_dump() | {"foreach": False}
        after = what_if(name, {"optimizer": optimizer})
        return f"There `foreach` temporaries are {copies}: {_effect(name, '--no-foreach', after)}"
    if logits > NOTABLE_SHARE * peak and workload.loss_head == "hf":
        after = what_if(name, {"loss_head": "chunked"})
        return f"Logits and loss take {_mib(logits)} of {name}'s peak: {_effect(name, '--loss-head chunked', after)}"
    activations = split.get("saved_activations", 0)
    if activations > NOTABLE_SHARE * peak:
        return f"Saved activations take {_mib(activations)} of {name}'s peak; a shorter sequence shrinks them."
    fixed = sum(split.get(key, 0) for key in ("parameters", "gradients", "optimizer_state"))
    return (f"Parameters, gradients and optimizer state take {_mib(fixed)} of {name}'s {_mib(peak)} whatever the "
            "strategy: only another optimizer or a smaller model moves them.")


def _effect(name: str, flag: str, after: tuple[int, str]) -> str:
    return f"with {flag} {name} would peak at {_mib(after[0])}, set by {PHASE_WORDS[after[1]]}."


def _saving(rows: Sequence[dict[str, Any]], best: dict[str, Any]) -> str:
    baseline = next((row for row in rows if row["name"] == "baseline"), None)
    if baseline is None or baseline is best:
        return "" if baseline is None or len(rows) == 1 else "No strategy needs less memory than the baseline here."
    saved = baseline["peak_allocated_bytes"] - best["peak_allocated_bytes"]
    share = saved / baseline["peak_allocated_bytes"]
    return f"As it stands {best['name']} saves most: {_mib(saved)}, {share:.0%} of the baseline's peak."


def _mib(num_bytes: float) -> str:
    mib = bytes_to_mib(num_bytes)
    return f"{mib:,.0f} MiB" if mib >= 100 else f"{mib:,.1f} MiB"


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
