"""Figures that an honest run would hardly show. Each is a reason to ask, never a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memstrat.errors import MemstratError
from memstrat.units import MIB

CONFIGS = Path(__file__).parent.parent / "configs"
MODEL_CONFIGS = {"memstrat/tiny-qwen2": "tiny-qwen2.json", "Qwen/Qwen2.5-0.5B-Instruct": "qwen2.5-0.5b-instruct.json"}
MAX_ESTIMATE_DISTANCE = 0.25  # relative; the estimate itself is within a few percent


def implausible_figures(record: dict[str, Any]) -> list[str]:
    """Doubts about a baseline, G0 or G1 record as read from JSON."""
    doubts: list[str] = []
    config = record.get("config") or {}
    groups = [("candidates", record.get("candidates") or []),
              ("baseline", [record["baseline"]] if "baseline" in record else [])]
    groups += [(f"length_records[{item['seq_len']}]", item["candidates"])
               for item in record.get("length_records") or []]
    floor_mib = parameter_mib(config)
    for place, candidates in groups:
        for candidate in candidates:
            doubts += _candidate_doubts(f"{place}.{candidate['name']}", candidate, floor_mib)
        doubts += _same_times(place, candidates)
    return doubts + _far_from_estimate(record)


def parameter_mib(config: dict[str, Any]) -> float | None:
    """MiB of the fp32 parameters of a bundled model, from its config; None for other models."""
    name = MODEL_CONFIGS.get(config.get("model_id", ""))
    if name is None:
        return None
    shape = json.loads((CONFIGS / name).read_text(encoding="utf-8"))
    hidden, layers, inner = shape["hidden_size"], shape["num_hidden_layers"], shape["intermediate_size"]
    heads, kv_heads = shape["num_attention_heads"], shape["num_key_value_heads"]
    head = shape.get("head_dim") or hidden // heads
    attention = 2 * hidden * heads * head + 2 * hidden * kv_heads * head + (heads + 2 * kv_heads) * head
    per_layer = attention + 3 * hidden * inner + 2 * hidden
    embeddings = shape["vocab_size"] * hidden * (1 if shape.get("tie_word_embeddings") else 2)
    return (embeddings + layers * per_layer + hidden) * 4 / MIB


def _candidate_doubts(place: str, candidate: dict[str, Any], floor_mib: float | None) -> list[str]:
    doubts = []
    for run in candidate.get("runs") or []:
        where, peak = f"{place}.runs[{run.get('repeat')}]", run.get("peak_memory_mb")
        if run.get("status") != "ok" or peak is None:
            continue
        if floor_mib is not None and peak < floor_mib:
            doubts.append(f"{where}: peak of {peak:.1f} MiB is below the parameters' own {floor_mib:.1f} MiB")
        reserved = run.get("peak_reserved_mb")
        if reserved is not None and reserved < peak:
            doubts.append(f"{where}: reserved {reserved:.1f} MiB is below allocated {peak:.1f} MiB")
        times = run.get("step_times_ms") or []
        if len(times) > 1 and len(set(times)) == 1:
            doubts.append(f"{where}: all {len(times)} raw step times are identical ({times[0]} ms)")
        wall_s = run.get("wall_s")
        if wall_s is not None and sum(times) / 1000 > wall_s:
            doubts.append(f"{where}: timed steps take {sum(times) / 1000:.1f} s, more than the whole run's "
                          f"{wall_s:.1f} s")
    return doubts


def _same_times(place: str, candidates: list[dict[str, Any]]) -> list[str]:
    """Two runs with the same raw times: copied, most likely."""
    seen: dict[tuple[float, ...], str] = {}
    doubts = []
    for candidate in candidates:
        for run in candidate.get("runs") or []:
            times = tuple(run.get("step_times_ms") or ())
            name = f"{candidate['name']}.runs[{run.get('repeat')}]"
            if times and times in seen:
                doubts.append(f"{place}.{name}: raw step times are identical to those of {seen[times]}")
            seen.setdefault(times, name)
    return doubts


def _far_from_estimate(record: dict[str, Any]) -> list[str]:
    """G1 holds an estimate beside each admitted length: is what was measured anywhere near it?"""
    estimates = {check["seq_len"]: check.get("estimated_peak_mb")
                 for check in (record.get("admission") or {}).get("checks", [])}
    doubts = []
    for item in record.get("length_records") or []:
        estimate = estimates.get(item["seq_len"])
        measured = next((row.get("peak_memory_mb") for row in item["candidates"] if row["name"] == "baseline"), None)
        if estimate and measured and abs(measured / estimate - 1) > MAX_ESTIMATE_DISTANCE:
            doubts.append(f"length_records[{item['seq_len']}].baseline: peak of {measured:.1f} MiB is far from the "
                          f"estimate, {estimate:.1f} MiB")
    return doubts


def far_from_prediction(path: Path) -> list[str]:
    """Peaks of a G0 or G1 record that the predictor, asked now, calls implausible. Loads torch."""
    from memstrat.estimate.compare import compare_readout
    from memstrat.readout import read_file

    if not path.name.startswith(("76_real_gpu_memory", "76_cpu_rehearsal_memory")):
        return []
    try:
        rows = compare_readout(read_file(path))["rows"]
    except MemstratError as error:
        return [f"no prediction to compare with: {str(error).splitlines()[0]}"]
    return [f"{row['kind']} at {row['seq_len']}, {row['name']}: peak of {row['measured_mib']:.1f} MiB is far from the "
            f"predicted {row['predicted_mib']:.1f} MiB ({row['difference_pct']:+.1f} %)"
            for row in rows if row["verdict"] == "implausible"]
