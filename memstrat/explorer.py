"""Gates to move: sliders over a G0 record's budget that redraw the plot and the decision.

The record stays as it is; only a copy of its budget changes. Not covered: measuring, G1.
"""

from __future__ import annotations

import base64
import html
from typing import Any

from memstrat.decision import decide_full_training_adoption, judge_candidates
from memstrat.errors import InputError, RecordError
from memstrat.evidence import finite_number, rows_of
from memstrat.gates import Verdict
from memstrat.plots import plot_memory_throughput
from memstrat.widgets import Table, in_language, language
from memstrat.wording import verdict_key, word

NUM_STEPS = 100  # positions of a slider over its range
_REASONS = {
    "no_strategy_meets_budget_and_quality": (
        "No row meets every gate: the task does not fit this budget.",
        "没有一行能过所有门槛：这个预算放不下这个任务。"),
    "baseline_not_measured": (
        "Without a measured baseline there is nothing to save from.", "没有测到基线，就谈不上节省。"),
    "strategy_is_best_feasible_option": (
        "A strategy passes every gate, saves enough and keeps enough throughput.",
        "有策略过了所有门槛，省得够多，吞吐也留得够多。"),
    "strategy_needs_quality_recovery": (
        "A row failed the quality floor.", "有一行没过质量下限。"),
    "baseline_still_best_under_current_budget": (
        "The baseline itself is the best row that fits.", "放得下的各行里，最好的就是基线本身。"),
    "memory_saving_below_meaningful_threshold": (
        "The best strategy saves less than the minimum you set.", "最好的策略，省下的还不到你设的最小值。"),
    "throughput_loss_exceeds_budget": (
        "The best strategy costs more throughput than you allow.", "最好的策略，吞吐损失超过了你允许的程度。"),
    "g0_incomplete_repeats": (
        "Some runs are missing: measure again before deciding.", "有些运行缺失：先补测，再下结论。"),
}


def explore_gates(record: dict[str, Any]) -> Any:
    """Sliders for the four gates, the plot, the decision in words and a table of who passes.

    Args:
        record: a G0 record as read from JSON.

    Returns:
        An ipywidgets box.

    Raises:
        InputError: no row of the record was measured, so there is no range to move in.
    """
    import ipywidgets

    sliders = {key: ipywidgets.FloatSlider(
        value=value, min=low, max=high, step=(high - low) / NUM_STEPS, description=label, continuous_update=False,
        readout_format=".2f" if high <= 10 else ",.0f", layout=ipywidgets.Layout(width="95%"),
        style={"description_width": "45%"}) for key, (label, value, low, high) in _ranges(record).items()}
    decision, picture, table = ipywidgets.HTML(), ipywidgets.HTML(), ipywidgets.HTML()

    def redraw(_: Any = None) -> None:
        changed = with_budget(record, {key: slider.value for key, slider in sliders.items()})
        drawing = plot_memory_throughput(changed, language())
        decision.value = decision_html(changed)
        picture.value = _picture_html(drawing)
        table.value = gates_table(changed)._repr_html_()

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    redraw()
    return ipywidgets.VBox([*sliders.values(), decision, picture, table])


def with_budget(record: dict[str, Any], gates: dict[str, float]) -> dict[str, Any]:
    """A copy of the record under another budget."""
    return {**record, "budget": {**(record.get("budget") or {}), **gates}}


def decide(record: dict[str, Any]) -> dict[str, Any]:
    """What the record's rows and budget decide; a record without path evidence decides nothing."""
    config = record.get("config") or {}
    try:
        return decide_full_training_adoption(record.get("candidates") or [], record.get("budget") or {},
                                             record.get("quality_floor"), config.get("repeats", 0),
                                             config.get("strategies", ()))
    except RecordError as error:
        return {"decision": "-", "reason": str(error), "next_action": "-"}


def decision_html(record: dict[str, Any]) -> str:
    """The decision as a sentence with its three words."""
    found = decide(record)
    words = _REASONS.get(found["reason"], ("", ""))
    sentence = in_language(*words)
    style = "padding:.5em .8em;border-left:4px solid #0072B2"
    return (f'<div class="memstrat-decision" aria-live="polite" style="{style}">'
            f"<b>{html.escape(found['decision'])}</b> · <code>{html.escape(found['reason'])}</code><br>"
            f"{html.escape(sentence)} → <code>{html.escape(found['next_action'])}</code></div>")


def gates_table(record: dict[str, Any]) -> Table:
    """Each row, what it saves and costs, and the first thing that speaks against it."""
    verdicts = judge_candidates(record.get("candidates") or [], record.get("budget") or {}, record.get("quality_floor"))
    columns = [in_language("strategy", "策略"), in_language("peak, MiB", "峰值，MiB"),
               in_language("saves, MiB", "节省，MiB"), in_language("throughput ratio", "吞吐比"),
               in_language("verdict", "判定")]
    return Table(columns, [[item.name, item.peak_memory_mb, item.memory_saving_mb, item.throughput_ratio,
                            word(verdict_key(item), language())] for item in verdicts])


def _picture_html(drawing: Any) -> str:
    data = base64.b64encode(drawing._repr_mimebundle_()[0]["image/png"]).decode()
    return (f'<img class="memstrat-plot" alt="{html.escape(drawing.text, quote=True)}" '
            f'style="max-width:100%" src="data:image/png;base64,{data}">')


def _ranges(record: dict[str, Any]) -> dict[str, tuple[str, float, float, float]]:
    """Label, value, lowest and highest of each slider, from what was measured."""
    verdicts: list[Verdict] = judge_candidates(rows_of(record.get("candidates")), {"memory_cap_mb": 1e12}, None)
    peaks = [item.peak_memory_mb for item in verdicts if item.peak_memory_mb is not None]
    rates = [item.samples_per_s for item in verdicts if item.samples_per_s is not None]
    if not peaks:
        raise InputError("candidates: must hold at least one measured row, got none. Measure with memstrat g0.")
    budget = record.get("budget") or {}

    def start(key: str, default: float, low: float, high: float) -> float:
        value = finite_number(budget.get(key))
        return min(max(default if value is None else value, low), high)

    spread = max(max(peaks) - min(peaks), 0.05 * max(peaks))
    low_cap, high_cap = min(peaks) - 0.3 * spread, max(peaks) + 0.3 * spread
    limits = {
        "memory_cap_mb": (in_language("memory cap, MiB", "内存上限，MiB"), low_cap, high_cap, high_cap),
        "min_memory_saving_mb": (in_language("minimum saving, MiB", "最小节省量，MiB"), 0.0, 1.5 * spread, 0.0),
        "min_throughput_ratio": (in_language("minimum throughput ratio", "最小吞吐比"), 0.05, 1.0, 0.7),
        "min_samples_per_s": (in_language("throughput floor, samples/s", "吞吐下限，samples/s"), 0.0,
                              1.2 * max(rates), 0.0),
    }
    return {key: (label, start(key, default, low, high), low, high)
            for key, (label, low, high, default) in limits.items()}
