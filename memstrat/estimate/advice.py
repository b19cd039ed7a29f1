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
from memstrat.wording import LANGUAGES, check_language
from memstrat.workload import Workload

WhatIf = Callable[[str, dict[str, Any]], tuple[int, str]]
"""Predict a strategy under changed workload fields: peak allocated (bytes) and the phase that sets it."""

_TEXTS: dict[str, tuple[str, str]] = {
    "forward": ("forward", "前向"), "backward": ("backward", "反向"), "optimizer": ("the optimizer step", "优化器更新"),
    "and": (" and ", " 和 "), "comma": (", ", "、"), "pause": (", ", "，"), "sentence": ("{}.", "{}。"),
    "span": ("{} to {}", "{} 到 {}"),
    "sets_first": ("{phase} sets the peak of {names} ({span})", "{names} 的峰值由{phase}决定（{span}）"),
    "sets_next": ("{phase} that of {names} ({span})", "{names} 的由{phase}决定（{span}）"),
    "optimizer_share": ("The optimizer's temporaries take {} of it.", "其中优化器的临时张量占 {}。"),
    "one_copy": ("one more copy of the parameters ({})", "再多一份参数（{}）"), "more": ("{} more", "另外的 {}"),
    "foreach": ("There `foreach` temporaries are {}: {}", "此时 `foreach` 的临时张量相当于{}：{}"),
    "logits": ("Logits and loss take {} of {}'s peak: {}", "logits 和损失占 {1} 峰值的 {0}：{2}"),
    "activations": ("Saved activations take {} of {}'s peak; a shorter sequence shrinks them.",
                    "保存的激活占 {1} 峰值的 {0}；缩短序列可以减小它。"),
    "fixed": ("Parameters, gradients and optimizer state take {} of {}'s {} whatever the strategy: only another "
              "optimizer or a smaller model moves them.",
              "{1} 的 {2} 里，参数、梯度和优化器状态占 {0}，与策略无关：只有换优化器或换小一点的模型才能改变。"),
    "effect": ("with {} {} would peak at {}, set by {}.", "加上 {}，{} 的峰值会是 {}，由{}决定。"),
    "none_saves": ("No strategy needs less memory than the baseline here.", "这里没有哪个策略比基线更省内存。"),
    "saves_most": ("As it stands {} saves most: {}, {:.0%} of the baseline's peak.",
                   "目前 {} 省得最多：{}，占基线峰值的 {:.0%}。"),
}
NOTABLE_SHARE = 0.15
"""A kind of memory below this share of the peak is not worth a sentence."""


def advise(estimate: Estimate, language: str = "en") -> list[str]:
    """Advice on an estimate, in `en` or `zh`; traces one more step for the lever it names."""
    return advise_rows([item.record() for item in estimate.strategies], estimate.workload, what_if_of(estimate),
                       language)


def advise_rows(rows: Sequence[dict[str, Any]], workload: Workload, what_if: WhatIf,
                language: str = "en") -> list[str]:
    """Advice on rows with `name`, `peak_allocated_bytes`, `peak_phase` and `categories_at_peak`.

    Returns:
        What sets the peaks; the lever on the lowest of them, with its effect; what the best strategy saves.
    """
    if not rows:
        return []
    best = min(rows, key=lambda row: row["peak_allocated_bytes"])
    say = _Voice(language)
    sentences = [_what_sets_the_peaks(rows, say), _lever(best, workload, what_if, say), _saving(rows, best, say)]
    return [sentence for sentence in sentences if sentence]


def what_if_of(estimate: Estimate) -> WhatIf:
    """Predictions of a changed task under the assumptions of an estimate."""
    def predicted(name: str, changes: dict[str, Any]) -> tuple[int, str]:
        trace = trace_strategy(estimate.workload.replace(**changes), name, estimate.settings)
        item = StrategyEstimate(name, predict_one(trace, estimate.settings), cost_of(trace), trace.kernels)
        return item.peak_allocated_bytes, item.peak_phase
    return predicted


class _Voice:
    """The sentences of one language."""

    def __init__(self, language: str):
        self.index = LANGUAGES.index(check_language(language))

    def __call__(self, key: str, *values: Any, **named: Any) -> str:
        text = _TEXTS[key][self.index].format(*values, **named)
        return text[:1].upper() + text[1:] if key == "sentence" and self.index == 0 else text

    def join(self, names: Sequence[str]) -> str:
        """Names in a row: `a, b and c`."""
        return names[0] if len(names) == 1 else self("comma").join(names[:-1]) + self("and") + names[-1]


def _what_sets_the_peaks(rows: Sequence[dict[str, Any]], say: _Voice) -> str:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["peak_phase"], []).append(row)
    parts = []
    for phase, members in sorted(groups.items(), key=lambda item: -len(item[1])):
        peaks = [row["peak_allocated_bytes"] for row in members]
        low, high = _mib(min(peaks)), _mib(max(peaks))
        span = low if low == high else say("span", low.removesuffix(" MiB"), high)
        parts.append(say("sets_next" if parts else "sets_first", phase=say(phase), span=span,
                         names=say.join([row["name"] for row in members])))
    return say("sentence", say("pause").join(parts))


def _lever(row: dict[str, Any], workload: Workload, what_if: WhatIf, say: _Voice) -> str:
    split, peak, name = row["categories_at_peak"], row["peak_allocated_bytes"], row["name"]
    temporaries, logits = split.get("optimizer_temporaries", 0), split.get("logits_and_loss", 0)

    def effect(flag: str, changes: dict[str, Any]) -> str:
        after, phase = what_if(name, changes)
        return say("effect", flag, name, _mib(after), say(phase))

    if temporaries > NOTABLE_SHARE * peak:
        if workload.optimizer.foreach is False:
            return say("optimizer_share", _mib(temporaries))
        is_one_copy = 0.9 < temporaries / split["parameters"] < 1.1
        optimizer = workload.optimizer.model_dump() | {"foreach": False}
        return say("foreach", say("one_copy" if is_one_copy else "more", _mib(temporaries)),
                   effect("--no-foreach", {"optimizer": optimizer}))
    if logits > NOTABLE_SHARE * peak and workload.loss_head == "hf":
        return say("logits", _mib(logits), name, effect("--loss-head chunked", {"loss_head": "chunked"}))
    activations = split.get("saved_activations", 0)
    if activations > NOTABLE_SHARE * peak:
        return say("activations", _mib(activations), name)
    fixed = sum(split.get(key, 0) for key in ("parameters", "gradients", "optimizer_state"))
    return say("fixed", _mib(fixed), name, _mib(peak))


def _saving(rows: Sequence[dict[str, Any]], best: dict[str, Any], say: _Voice) -> str:
    baseline = next((row for row in rows if row["name"] == "baseline"), None)
    if baseline is None or baseline is best:
        return "" if baseline is None or len(rows) == 1 else say("none_saves")
    saved = baseline["peak_allocated_bytes"] - best["peak_allocated_bytes"]
    return say("saves_most", best["name"], _mib(saved), saved / baseline["peak_allocated_bytes"])


def _mib(num_bytes: float) -> str:
    mib = bytes_to_mib(num_bytes)
    return f"{mib:,.0f} MiB" if mib >= 100 else f"{mib:,.1f} MiB"
