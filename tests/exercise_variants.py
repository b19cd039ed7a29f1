"""Solutions of the exercises written from the contract alone, right or wrong in one rule (`bug`)."""

from __future__ import annotations

import copy
import functools
import math

METRICS = ("peak_memory_mb", "samples_per_s", "eval_loss")


def number(value, bug=""):
    if isinstance(value, bool) and bug != "bool":
        return False
    if bug == "nan":
        return isinstance(value, (int, float))
    return isinstance(value, (int, float)) and math.isfinite(value)


def validate(baseline, candidates, bug=""):
    issues, names = [], []
    for row in candidates:
        name = row.get("name")
        if not isinstance(name, str) or (not name and bug != "empty_name"):
            issues.append("candidate:missing_name")
            if bug != "checks_nameless":
                continue
        if name in names and bug != "duplicate":
            issues.append(f"{name}:duplicate_name")
        if not (bug == "names_once" and name in names) and isinstance(name, str):
            names.append(name)
        for key in ("workload_id", "hardware_id", "repeat_count"):
            if bug == key or (bug == "both_missing" and key not in row and key not in baseline):
                continue
            if key not in row or key not in baseline or row[key] != baseline[key]:
                issues.append(f"{name}:{key}_mismatch")
        verified = row.get("execution_path_verified")
        asked = row.get("status") not in ("oom", "failed") or bug == "asks_failures"
        if asked and bug != "path" and not (verified if bug == "truthy" else verified is True):
            issues.append(f"{name}:execution_path_unverified")
        if bug == "judges_gain" and not all(number(row.get(key)) for key in METRICS):
            issues.append(f"{name}:invalid_metrics")
    if not all(number(baseline.get(key), bug) for key in METRICS):
        issues.insert(0 if bug == "order" else len(issues), "baseline:invalid_metrics")
    if bug == "mutates":
        baseline["seen"] = True
    return {"is_valid": bool(issues) if bug == "is_valid" else not issues, "issues": issues, "candidate_names": names}


def pairs(baseline, candidates, bug=""):
    usable = baseline.get("status", "ok") == "ok" and all(number(baseline.get(key), bug) for key in METRICS) \
        and (baseline["samples_per_s"] > 0 or bug == "zero_throughput")
    if bug == "ignores_baseline_status":
        usable = all(number(baseline.get(key)) for key in METRICS) and baseline["samples_per_s"] > 0
    rows = []
    for row in candidates:
        status = row.get("status", "failed" if bug == "missing_status" else "ok")
        if status in ("oom", "failed") and not (bug == "oom_saving" and number(row["peak_memory_mb"])):
            if bug == "drops_oom":
                continue
            rows.append({"name": row["name"], "status": "failed" if bug == "oom_is_failed" else status})
        elif not usable or not all(number(row.get(key), bug) for key in METRICS) \
                or (status not in ("ok", "oom", "failed") and bug != "any_status"):
            rows.append({"name": row["name"], "status": "invalid"})
        else:
            saving = baseline["peak_memory_mb"] - row["peak_memory_mb"]
            ratio = row["samples_per_s"] / baseline["samples_per_s"]
            delta = row["eval_loss"] - baseline["eval_loss"]
            rows.append({
                "name": row["name"], "status": "comparable",
                "repeat_count": (baseline if bug == "repeats" else row)["repeat_count"],
                "execution_path_verified": True if bug == "path" else bool(row.get("execution_path_verified")),
                "candidate_peak_memory_mb": row["peak_memory_mb"],
                "candidate_samples_per_s": row["samples_per_s"], "candidate_eval_loss": row["eval_loss"],
                "memory_saving_mb": -saving if bug == "saving_sign" else round(saving) if bug == "round" else saving,
                "throughput_ratio": 1 / ratio if bug == "ratio" else ratio,
                "quality_delta": -delta if bug == "delta_sign" else delta,
            })
    count = {f"{status}_count": sum(row["status"] == status for row in rows)
             for status in ("comparable", "oom", "failed", "invalid")}
    if bug == "counts":
        count["comparable_count"] = len(rows)
    return {"baseline": {} if bug == "no_baseline" else baseline, "comparisons": rows, **count}


def handoff(evidence, minimum_repeats=3, bug=""):
    minimum = 3 if bug == "fixed_three" else minimum_repeats
    runs = [row for row in evidence["comparisons"] if row["status"] == "comparable"]
    judged = list(evidence["comparisons"]) if bug == "failures_need_repeats" else list(runs)
    if bug == "baseline_only":
        judged = []
    if bug != "candidates_only":
        judged.append(evidence["baseline"])
    eligible = [row["name"] for row in runs if row["execution_path_verified"] or bug == "path"]
    few = any(row.get("repeat_count", 0) <= minimum if bug == "too_strict" else
              row.get("repeat_count", 0) < minimum - (bug == "too_lax") for row in judged)
    nothing = ("no_valid_candidate", "no_comparable_strategy", [], "repair_strategy_execution")
    rerun = ("rerun_required", "insufficient_repeats", [], "repeat_paired_runs")
    ready = ("ready_for_budget_review", "paired_evidence_complete",
             eligible[:1] if bug == "picks_one" else eligible, "send_to_memory_budget_project")
    if bug == "oom_is_candidate":
        ready = (*ready[:2], [row["name"] for row in evidence["comparisons"]
                              if row.get("execution_path_verified", True)], ready[3])
    if bug == "path_first" and not eligible:
        status = nothing
    else:
        status = rerun if few else ready if eligible or bug == "always_ready" else nothing
    if bug == "word":
        status = (status[0], "ok", *status[2:])
    return dict(zip(("status", "reason", "eligible_candidates", "next_action"), status, strict=True))


def saved_bytes(batch_size, widths, activation, element_bytes, bug=""):
    hidden = sum(widths[1:-1])
    if activation == "gelu" and bug != "gelu_once" or activation == "relu" and bug == "relu_twice":
        hidden *= 2
    total = (0 if bug == "no_input" else widths[0]) + hidden + (0 if bug == "no_output" else widths[-1])
    total *= 1 if bug == "batch" else batch_size
    if bug == "parameters":
        total += sum(a * b for a, b in zip(widths[1:], widths[2:], strict=False))
    return total * (4 if bug == "always_four" else element_bytes)


def peak_floor(parameter_numels, element_bytes, optimizer, foreach, bug=""):
    size = sum(parameter_numels) * (4 if bug == "always_four" else element_bytes)
    adamw = optimizer == "AdamW" or bug == "sgd_as_adamw"
    largest = max(parameter_numels) * element_bytes * (1 if bug == "largest_once" else 2)
    parts = {"parameters_bytes": size, "gradients_bytes": 0 if bug == "no_gradients" else size,
             "moments_bytes": (1 if bug == "one_moment" else 2) * size * adamw,
             "temporaries_bytes": (0 if bug == "no_temporaries" else size if foreach else largest) * adamw}
    return {**parts, "floor_bytes": max(parts.values()) if bug == "maximum" else sum(parts.values())}


def hooks(bug=""):
    slot, packed_once = {}, []

    def pack(tensor):
        host = tensor.detach().cpu() if bug == "cpu_only" else tensor.detach().clone()
        if bug == "identity":
            host = tensor
        if bug == "half" and host.is_floating_point():
            host = host.half()
        if bug == "flat":
            host = host.reshape(-1)
        if bug == "one_slot":
            slot["tensor"] = host
        if bug == "numpy" and host.dtype != __import__("torch").bfloat16:
            return tensor.dtype, host.numpy().copy()
        return tensor.dtype, host

    def unpack(packed):
        dtype, host = packed
        if bug == "one_slot":
            host = slot["tensor"]
        if bug == "once":
            if any(one is packed for one in packed_once):
                return host * 0
            packed_once.append(packed)
        if bug == "keeps_half":
            return host.half() if host.is_floating_point() else host
        return host if bug in ("numpy",) else host.to(dtype)

    return None if bug == "nothing" else (pack,) if bug == "no_unpack" else (pack, unpack)


def with_bug(function, bug):
    return functools.partial(copy.copy(function), bug=bug)
