"""Audit of records: what can be recomputed is recomputed, what looks impossible is listed for a person.

An `error` is a fact: a schema, hash, label or derived number that does not hold. A `finding` is a
doubt: a figure that an honest run would hardly show. Neither is proof of intent, and a run that was
never made but is consistent in every number passes. Torch-free.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from pydantic import ValidationError

from memstrat.boundary import decide_memory_boundary, summarize_memory_boundary
from memstrat.candidates import aggregate, standard_metrics, summarize_repeats
from memstrat.decision import decide_full_training_adoption, summarize_memory_strategy_candidates
from memstrat.errors import InputError, MemstratError
from memstrat.grading.plausibility import far_from_prediction, implausible_figures
from memstrat.paths import CORE_PATH_RULES
from memstrat.records import (
    CPU_REHEARSAL,
    SCHEMA_VERSIONS,
    STAGE_BASELINE,
    STAGE_G0,
    STAGE_G1,
    DecisionRecord,
    G0Record,
    G1Record,
    InputManifest,
    Record,
    Run,
    TrainingBaseline,
    content_sha256,
)
from memstrat.storage import check_schema_version, read_json, sha256_of

_KINDS: list[tuple[str, type[Any], str]] = [
    ("73_training_baseline_", TrainingBaseline, "baseline"), ("76_input_manifest_", InputManifest, "manifest"),
    ("76_memory_strategy_decision_", DecisionRecord, "decision"),
    ("76_real_gpu_memory_boundary_", G1Record, "g1"), ("76_cpu_rehearsal_memory_boundary_", G1Record, "g1"),
    ("76_real_gpu_memory_", G0Record, "g0"), ("76_cpu_rehearsal_memory_", G0Record, "g0"),
]


class Remark(NamedTuple):
    """One thing the audit has to say about a file."""

    file: str
    level: str  # error or finding
    what: str


class Audit(NamedTuple):
    """All that was looked at, and all remarks, in the order of the files."""

    files: list[str]
    remarks: list[Remark]

    @property
    def errors(self) -> list[Remark]:
        return [remark for remark in self.remarks if remark.level == "error"]

    def as_dict(self) -> dict[str, Any]:
        return {"files": self.files, "remarks": [remark._asdict() for remark in self.remarks]}


def audit(path: Path, predict: bool = False) -> Audit:
    """Audit a record, or all records below a folder. Reads only.

    Args:
        path: a record or a folder.
        predict: compare peaks with the predictor's, too; loads torch and takes seconds a record.

    Raises:
        InputError: the path is absent or holds no record.
    """
    if not path.exists():
        raise InputError(f"path: must be a record or a folder with records, got {str(path)!r}, which is not there. "
                         "Check the path.")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("7*.json") if kind_of(file.name))
    if not files or not all(kind_of(file.name) for file in files):
        raise InputError(f"path: must hold records named 73_*.json or 76_*.json, got {path.name}. "
                         "Point it at the results folder.")
    root = path if path.is_dir() else path.parent
    remarks = [remark for file in files for remark in _audit_file(file, file.relative_to(root).as_posix())]
    if predict:
        remarks += [Remark(file.relative_to(root).as_posix(), "finding", text) for file in files
                    for text in far_from_prediction(file)]
    return Audit([file.relative_to(root).as_posix() for file in files], remarks)


def kind_of(name: str) -> tuple[str, type[Any], str] | None:
    """(prefix, model, kind) of a record's file name, or None."""
    return next((one for one in _KINDS if name.startswith(one[0]) and name.endswith(".json")), None)


def _audit_file(path: Path, name: str) -> list[Remark]:
    known = kind_of(path.name)
    assert known is not None
    prefix, model, kind = known
    try:
        raw = read_json(path)
        check_schema_version(path, raw, SCHEMA_VERSIONS[model])
        record = model.model_validate(raw)  # not read_record: an edited record is audited to the end
        broken, doubts = _sources(path, record)
        problems = [*_identity(path, prefix, raw, record), *broken]
        if kind == "g0":
            problems += _derived_g0(record)
        elif kind == "g1":
            problems += _derived_g1(record)
        elif kind == "decision":
            problems += _derived_decision(path, record)
        if kind in ("g0", "g1", "baseline"):
            doubts += implausible_figures(raw)
    except MemstratError as error:
        return [Remark(name, "error", line) for line in str(error).splitlines()[:1]]
    except ValidationError as error:
        return [Remark(name, "error", f"{'.'.join(map(str, item['loc']))}: {item['msg']}") for item in error.errors()]
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"record: must be complete enough to recompute, got {type(error).__name__}: {error}"
        return [Remark(name, "error", text)]
    return [Remark(name, "error", text) for text in problems] + [Remark(name, "finding", text) for text in doubts]


def _identity(path: Path, prefix: str, raw: dict[str, Any], record: Any) -> list[str]:
    label = path.name.removeprefix(prefix).removesuffix(".json")
    problems = []
    if record.run_label != label:
        problems.append(f"run_label: must be {label!r}, as the file's name says, got {record.run_label!r}")
    stage = {G0Record: STAGE_G0, G1Record: STAGE_G1, TrainingBaseline: STAGE_BASELINE}.get(type(record))
    if stage and record.stage != stage:
        problems.append(f"stage: must be {stage}, got {record.stage!r}")
    mode = getattr(record, "run_mode", None)
    if mode and prefix.startswith(("76_real", "76_cpu")) and mode not in prefix:
        problems.append(f"run_mode: must be the one of the file's name, got {mode}")
    if record.content_sha256 and record.content_sha256 != content_sha256(raw):
        problems.append("content_sha256: must be that of the content, got another: the record was edited")
    return problems


def find_source(path: Path, relative: str) -> Path | None:
    """The file that a record names: where it says, or beside the record (a submission may be flat)."""
    root = path.parent.parent.parent if path.parent.parent.name == "benchmarks" else path.parent.parent
    places = (root / relative, path.parent / Path(relative).name)
    return next((place for place in places if place.is_file()), None)


def _sources(path: Path, record: Record) -> tuple[list[str], list[str]]:
    """The hash chain: (files that were changed, files that were not handed in)."""
    named = [(key, getattr(record, key, None), getattr(record, f"{key}_sha256", None))
             for key in ("source_manifest", "source_baseline", "source_g0", "source_g1")]
    named += [("inputs", item.path, item.sha256) for item in getattr(record, "inputs", [])]
    changed, absent = [], []
    for key, relative, expected in named:
        if not relative:
            continue
        found = find_source(path, relative)
        if found is None:
            absent.append(f"{key}: {Path(relative).name} is not among the files, so that its hash cannot be compared")
        elif sha256_of(found) != expected:
            changed.append(f"{key}: SHA-256 of {found.name} must be {str(expected)[:12]}..., got "
                           f"{sha256_of(found)[:12]}...")
    return changed, absent


def _differs(recorded: Any, recomputed: Any, place: str) -> list[str]:
    """Every number or word in which what is recorded is not what the raw runs give."""
    if isinstance(recomputed, dict):
        held = recorded if isinstance(recorded, dict) else {}
        return [text for key, value in recomputed.items() for text in _differs(held.get(key), value, f"{place}.{key}")]
    if isinstance(recomputed, (list, tuple)):
        held = recorded if isinstance(recorded, (list, tuple)) else []
        if len(held) != len(recomputed):
            return [f"{place}: must hold {len(recomputed)} entries, got {len(held)}"]
        return [text for index, (ours, theirs) in enumerate(zip(held, recomputed, strict=True))
                for text in _differs(ours, theirs, f"{place}[{index}]")]
    both_numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (recorded, recomputed))
    agrees = math.isclose(recorded, recomputed, rel_tol=1e-9) if both_numbers else recorded == recomputed
    return [] if agrees else [f"{place}: must be {recomputed!r} from the raw values, got {recorded!r}"]


def _derived_runs(runs: list[Run], batch_size: int, place: str) -> list[str]:
    """What each run derives from its own raw values."""
    problems = []
    for run in runs:
        where = f"{place}.{run.name}.runs[{run.repeat}]"
        if run.step_times_ms:
            step_time = median(run.step_times_ms)
            problems += _differs(run.step_time_ms, step_time, f"{where}.step_time_ms")
            problems += _differs(run.samples_per_s, batch_size * 1000 / step_time, f"{where}.samples_per_s")
        elif run.status == "ok":
            problems.append(f"{where}.step_times_ms: must hold the raw times of an ok run, got none")
        if run.path is not None and run.name in CORE_PATH_RULES and run.status == "ok":
            broken = CORE_PATH_RULES[run.name](run.path)
            problems += _differs(run.execution_path_verified, not broken, f"{where}.execution_path_verified")
        elif run.execution_path_verified and run.path is None:
            problems.append(f"{where}.execution_path_verified: must rest on path counts, got none")
    return problems


def _derived_candidates(candidates: list[Any], config: dict[str, Any], place: str) -> list[str]:
    batch_size = int(config["batch_size"])
    problems = []
    for candidate in candidates:
        problems += _derived_runs(candidate.runs, batch_size, place)
        repeats = Counter(run.repeat for run in candidate.runs)
        if any(count > 1 for count in repeats.values()):
            problems.append(f"{place}.{candidate.name}.runs: must hold each repeat once, got "
                            f"{sorted(repeats.elements())}")
    recomputed = aggregate([run for candidate in candidates for run in candidate.runs], batch_size)
    by_name = {candidate.name: candidate for candidate in recomputed}
    for candidate in candidates:
        if candidate.name not in by_name:
            problems.append(f"{place}.{candidate.name}.runs: must hold the raw runs, got none")
            continue
        fresh = by_name[candidate.name].model_dump(mode="json", exclude={"runs"})
        problems += _differs(candidate.model_dump(mode="json", exclude={"runs"}), fresh, f"{place}.{candidate.name}")
    return problems


def _derived_g0(record: G0Record) -> list[str]:
    problems = _derived_candidates(record.candidates, record.config, "candidates")
    rows = [row.model_dump(mode="json") for row in record.candidates]
    summary = summarize_memory_strategy_candidates(rows, record.budget, record.quality_floor)
    return [*problems, *_differs(record.summary, summary, "summary"),
            *_differs(record.repeat_summary, summarize_repeats(record.candidates), "repeat_summary"),
            *_differs(record.standard_metrics, standard_metrics(record.candidates), "standard_metrics")]


def _derived_g1(record: G1Record) -> list[str]:
    problems = []
    for item in record.length_records:
        problems += _derived_candidates(item.candidates, record.config, f"length_records[{item.seq_len}]")
    lengths = [item.model_dump(mode="json") for item in record.length_records]
    summary = json.loads(json.dumps(summarize_memory_boundary(lengths, record.budget, record.quality_floor,
                                                              record.status)))
    return [*problems, *_differs(record.summary, summary, "summary"),
            *_differs(record.assessment, decide_memory_boundary(summary), "assessment")]


def _derived_decision(path: Path, record: DecisionRecord) -> list[str]:
    """The decision once more, from the G0 and G1 records it names."""
    g0_path, g1_path = find_source(path, record.source_g0), find_source(path, record.source_g1)
    if g0_path is None or g1_path is None:
        return []  # told by the hash chain
    g0, g1 = G0Record.model_validate(read_json(g0_path)), G1Record.model_validate(read_json(g1_path))
    rows = [row.model_dump(mode="json") for row in g0.candidates]
    adoption = decide_full_training_adoption(rows, g0.budget, g0.quality_floor, g0.config.get("repeats", 0),
                                             g0.config.get("strategies", []))
    lengths = [item.model_dump(mode="json") for item in g1.length_records]
    boundary = decide_memory_boundary(summarize_memory_boundary(lengths, g1.budget, g1.quality_floor, g1.status))
    status = "rehearsal_only" if record.run_mode == CPU_REHEARSAL else adoption["decision"]
    problems = [*_differs(record.decision, adoption, "decision"),
                *_differs(record.g0_decision, adoption, "g0_decision"),
                *_differs(record.g1_decision, boundary, "g1_decision"),
                *_differs(record.handoff.get("status"), status, "handoff.status")]
    if {g0.run_label, g1.run_label} != {record.run_label}:
        problems.append(f"run_label: must be that of G0 and G1, {g0.run_label!r} and {g1.run_label!r}, got "
                        f"{record.run_label!r}")
    return problems
