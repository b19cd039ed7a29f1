"""What figures and tables call things, in English and in Chinese.

Strategy names, decisions, reasons and record keys are identifiers and stay as they are. Not covered:
the prose of notebooks, which lives in their sources.
"""

from __future__ import annotations

from typing import Any

from memstrat.errors import UnknownNameError
from memstrat.gates import PATH_NOT_RECORDED, Verdict

LANGUAGES = ("en", "zh")

_WORDS: dict[str, tuple[str, str]] = {
    "title_throughput": ("Peak memory against throughput", "内存峰值与吞吐量"),
    "title_ladder": ("Peak memory against sequence length", "内存峰值与序列长度"),
    "title_phases": ("Peak memory of each phase of a step", "一步训练中各阶段的内存峰值"),
    "peak_allocated": ("peak allocated (MiB)", "已分配内存峰值（MiB）"),
    "throughput": ("throughput (samples/s)", "吞吐量（样本/秒）"),
    "seq_len": ("sequence length (tokens)", "序列长度（token）"),
    "random_weights": ("random weights", "随机权重"), "pretrained_weights": ("pretrained weights", "预训练权重"),
    "rate": ("{:.3g} samples/s", "{:.3g} 样本/秒"),
    "memory_cap": ("memory cap {:,.0f} MiB", "内存上限 {:,.0f} MiB"),
    "min_saving": ("saves at least {:,.0f} MiB", "至少节省 {:,.0f} MiB"),
    "throughput_floor": ("at least {:g} samples/s", "至少 {:g} 样本/秒"),
    "min_ratio": ("keeps at least {:.0%} of the baseline", "至少保留基线吞吐量的 {:.0%}"),
    "off_scale": ("{} (off the scale)", "{}（在图外）"),
    "all_gates": ("memory and throughput gates met", "满足内存与吞吐门槛的区域"),
    "refused": ("{:,} refused: {:,.0f} MiB projected, {:,.0f} allowed",
                "{:,} 未放行：预计 {:,.0f} MiB，允许 {:,.0f} MiB"),
    "not_measured_at": ("{} at {:,}: {}", "{}，长度 {:,}：{}"),
    "forward": ("forward", "前向"), "backward": ("backward", "反向"), "optimizer": ("optimizer step", "优化器更新"),
    "after_forward": ("alive after forward", "前向结束后仍存活"),
    "rehearsal": ("CPU rehearsal, not a GPU result", "CPU 预演，不是 GPU 结果"),
    "prediction": ("Predicted, not measured", "预测值，不是测量结果"),
    "elsewhere": ("Measured elsewhere, not by memstrat", "由其他项目测得，不是 memstrat 的结果"),
    "reference": ("reference", "参照"),
    "passes": ("passes every gate", "通过全部门槛"),
    "no_baseline": ("feasible; no baseline to compare with", "可行；没有可比较的基线"),
    "oom": ("out of memory", "内存不足（OOM）"),
    "failed": ("failed", "运行失败"),
    "partial_oom": ("some runs out of memory", "部分重复内存不足（OOM）"),
    "duplicate_name": ("two rows of this name", "有两行同名"),
    "runs_incomplete": ("runs or figures missing", "缺少运行或数值"),
    "path_not_recorded": ("path not recorded", "未记录执行路径"),
    "path_unverified": ("path not verified", "执行路径未通过验证"),
    "over_memory_cap": ("over the memory cap", "超过内存上限"),
    "no_memory_cap": ("no memory cap given", "未给出内存上限"),
    "below_throughput_floor": ("below the throughput floor", "低于吞吐下限"),
    "quality_failed": ("eval loss above its limit", "评估损失超过上限"),
    "saves_too_little": ("saves too little", "节省的内存太少"),
    "costs_too_much": ("costs too much throughput", "吞吐损失过大"),
    "cuda_allocator": ("Memory: CUDA caching allocator, peak allocated over the timed steps.",
                       "内存：CUDA 缓存分配器，计时各步中的已分配峰值。"),
    "tensor_accounting": ("Memory: bytes of live tensors, counted as if the CPU were the device.",
                          "内存：存活张量的字节数，把 CPU 当作设备来计数。"),
    "estimate": ("Memory: a model of the CUDA caching allocator, replaying a traced step.",
                 "内存：用 CUDA 缓存分配器的模型重放一步训练的记录。"),
    "source_unknown": ("Memory: source not recorded.", "内存：来源未记录。"),
    "bars": ("Dots: single runs; bars: their range. Hollow: not feasible.",
             "小点：各次运行；线段：其范围。空心：不可行。"),
    "probe_step": ("From the probe step, largest of all runs. Thick edge: the phase that sets the peak.",
                   "取自探测步，各次运行中的最大值。粗边框：决定峰值的阶段。"),
    "isolation": ("SGD without momentum: activations isolated.", "无动量 SGD：只看激活。"),
    "no_font": ("(No font with Chinese characters was found: labels are English.)", ""),
}
_UNMEASURED = ("oom", "failed", "partial_oom", "duplicate_name")


def check_language(language: str) -> str:
    """The language itself. Raises `UnknownNameError` for any other than en and zh."""
    if language not in LANGUAGES:
        raise UnknownNameError(f"language: must be en or zh, got {language!r}. Choose one of the two.")
    return language


def word(key: str, language: str = "en", *values: Any) -> str:
    """A label in the language, with its values filled in."""
    text = _WORDS[key][LANGUAGES.index(language)]
    return text.format(*values) if values else text


def verdict_key(verdict: Verdict, budget: dict[str, Any] | None = None) -> str:
    """Which of the words above says how a row stands: the first thing that speaks against it.

    Args:
        verdict: of a row.
        budget: what it was judged by; without a cap in it no row is over the cap.
    """
    if verdict.status in _UNMEASURED:
        return verdict.status
    if verdict.path == PATH_NOT_RECORDED:
        return "path_not_recorded"
    if not verdict.measured:
        return "runs_incomplete"
    if verdict.gates["path_unverified"] is False:
        return "path_unverified"
    if budget is not None and budget.get("memory_cap_mb") is None:
        return "reference" if verdict.name == "baseline" else "no_memory_cap"
    failing = {"memory_cap": "over_memory_cap", "throughput_floor": "below_throughput_floor",
               "quality": "quality_failed"}
    for gate, key in failing.items():
        if verdict.gates[gate] is False:
            return key
    if verdict.name == "baseline":
        return "reference"
    if verdict.memory_saving_mb is None:
        return "no_baseline"
    if verdict.gates["memory_saving"] is False:
        return "saves_too_little"
    return "costs_too_much" if verdict.gates["throughput"] is False else "passes"
