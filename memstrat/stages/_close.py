"""Review what was recorded, and close the experiment with a decision. Loads no model, measures nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memstrat.boundary import SAFETY_BOUNDARY, decide_memory_boundary, summarize_memory_boundary
from memstrat.decision import decide_full_training_adoption, find_incomplete_candidates
from memstrat.environment import provenance
from memstrat.errors import MemstratError, NotReadyError
from memstrat.evidence import whole_count
from memstrat.records import (
    CPU_REHEARSAL,
    DECISION_SCHEMA,
    REAL_GPU,
    DecisionRecord,
    G0Record,
    G1Record,
    InputManifest,
)
from memstrat.storage import ResultsFolder, read_record, sha256_of, write_once
from memstrat.workload import check_label

CONSUMER = "75_memory_budget_compression"
_ISOLATION_LIMITS = ("optimizer_state_is_intentionally_removed_with_zero_momentum_sgd",
                     "result_does_not_establish_adamw_full_training_adoption")
_BOUNDARY_LIMIT = "length_ladder_stopped_at_the_safety_boundary"


def review(label: str, *, results_dir: str | Path | None = None) -> dict[str, Any]:
    """What is recorded under a label and whether it can be decided; writes nothing.

    Returns:
        The keys of contract, section 4; `problems` lists everything that stands in the way.

    Raises:
        LabelError: the label is unsafe or the placeholder.
    """
    return _Review(check_label(label), ResultsFolder(results_dir)).as_dict()


def close(label: str, *, results_dir: str | Path | None = None) -> dict[str, Any]:
    """Decide from the records alone and write the decision record.

    Returns:
        The record with `record_path` and `record_state` (`already_complete` if the same was there).

    Raises:
        NotReadyError: the experiment is not ready; every problem is listed.
        RecordConflictError: another decision is recorded under the label.
    """
    results = ResultsFolder(results_dir)
    seen = _Review(check_label(label), results)
    if seen.problems:
        raise NotReadyError(f"{label}: the experiment is not ready to close.", seen.problems,
                            f"Mend these, then run memstrat close --label {label} again.")
    path = results.file("decision", label)
    with results.lock(label):
        record = _decision(seen)
        state = write_once(path, record)
    return {**record.model_dump(mode="json", exclude={"content_sha256"}),
            "record_path": results.relative(path), "record_state": state}


class _Review:
    """Both records of a label as they are now, with every problem found in them."""

    def __init__(self, label: str, results: ResultsFolder):
        self.label, self.results, self.problems = label, results, []
        found = [mode for mode in (REAL_GPU, CPU_REHEARSAL)
                 if any(results.file(kind, label, mode).exists() for kind in ("g0", "g1"))]
        self.run_mode, self.is_recorded = (found or [REAL_GPU])[0], bool(found)
        self.g0_path, self.g0 = self._read("g0", G0Record)
        self.g1_path, self.g1 = self._read("g1", G1Record)
        if self.g0:
            self._check_g0(self.g0)
        num_g0_problems = len(self.problems)
        if self.g1:
            self._check_g1(self.g1)
        self.g1_ready = self.g1 is not None and len(self.problems) == num_g0_problems

    def _read(self, kind: str, model: type) -> tuple[Path | None, Any]:
        path = self.results.file(kind, self.label, self.run_mode)
        if not path.is_file():
            name = path.name if self.is_recorded else f"the {kind} record of {self.label}"
            self.problems.append(f"{name}: must exist, got no such file. Run memstrat {kind} --label {self.label}.")
            return None, None
        try:
            return path, read_record(path, model)
        except MemstratError as error:
            self.problems.append(str(error))
            return path, None

    def _check_g0(self, record: G0Record) -> None:
        self._check_label(self.g0_path, record)
        planned = _planned_strategies(record)
        missing = [name for name in planned if name not in {row.name for row in record.candidates}]
        if whole_count(record.config.get("repeats")) < 1:
            self.problems.append(f"{self.g0_path.name}: config.repeats must be a whole number above 0, got "
                                 f"{record.config.get('repeats')!r}. Restore the file.")
        if missing or not planned:
            self.problems.append(f"{self.g0_path.name}: candidates must hold every strategy of its config, got none "
                                 f"for {', '.join(missing) or 'an empty list'}. Measure again under another label.")
        unproven = [row.name for row in record.candidates
                    if row.status == "ok" and row.execution_path_verified is None]
        if unproven:
            self.problems.append(f"{self.g0_path.name}: execution_path_verified must be recorded, got nothing for "
                                 f"{', '.join(unproven)}. A record without path fields is shown, never decided.")
        for key in ("source_manifest", "source_baseline"):
            self._check_source(record, key)
        if record.source_manifest and record.source_baseline:
            self._check_manifest(record)

    def _check_source(self, record: G0Record, key: str) -> None:
        name, expected = getattr(record, key), getattr(record, f"{key}_sha256")
        if not name or not expected:
            self.problems.append(f"{self.g0_path.name}: {key} must be recorded with its SHA-256, got {name!r}. "
                                 "Measure again under another label.")
            return
        path = self.results.absolute(name)
        if not path.is_file():
            self.problems.append(f"{name}: must exist, got no such file. Restore it.")
        elif sha256_of(path) != expected:
            self.problems.append(f"{name}: SHA-256 must be {expected[:12]}…, as when G0 was measured, got "
                                 f"{sha256_of(path)[:12]}…. It was edited: restore it.")

    def _check_manifest(self, record: G0Record) -> None:
        path = self.results.absolute(record.source_manifest)
        if not path.is_file():
            return
        try:
            hashes = [item.sha256 for item in read_record(path, InputManifest).inputs]
        except MemstratError as error:
            self.problems.append(str(error))
            return
        if record.source_baseline_sha256 not in hashes:
            self.problems.append(f"{path.name}: inputs must list the baseline that G0 rests on, got other hashes. "
                                 "Restore the manifest.")

    def _check_g1(self, record: G1Record) -> None:
        self._check_label(self.g1_path, record)
        if self.g0_path and record.source_g0_sha256 != sha256_of(self.g0_path):
            self.problems.append(f"{self.g1_path.name}: source_g0_sha256 must be that of {self.g0_path.name} now, "
                                 f"{sha256_of(self.g0_path)[:12]}…, got {record.source_g0_sha256[:12]}…. G0 was edited "
                                 "or replaced after G1: restore it, or measure both under another label.")

    def _check_label(self, path: Path | None, record: G0Record | G1Record) -> None:
        if record.run_label != self.label:
            self.problems.append(f"{path.name}: run_label must be {self.label!r}, got {record.run_label!r}. "
                                 "A record belongs to the label it was measured under.")
        if record.run_mode != self.run_mode:
            self.problems.append(f"{path.name}: run_mode must be {self.run_mode}, as its name says, got "
                                 f"{record.run_mode}. Restore the file.")

    def as_dict(self) -> dict[str, Any]:
        g0, g1 = self.g0, self.g1
        incomplete = g0 and find_incomplete_candidates(
            [row.model_dump(mode="json") for row in g0.candidates], g0.config.get("repeats", 0),
            _planned_strategies(g0))
        return {
            "run_label": self.label, "run_mode": self.run_mode,
            "g0_path": self.g0_path and self.results.relative(self.g0_path),
            "g0_sha256": self.g0_path and sha256_of(self.g0_path),
            "schema_version": g0 and g0.schema_version, "semantic_id": g0 and g0.semantic_id,
            "config": g0 and g0.config,
            "candidate_rows": [row.model_dump(mode="json", exclude={"runs"}) for row in g0.candidates] if g0 else [],
            "summary": g0 and g0.summary,
            "g1_path": self.g1_path and self.results.relative(self.g1_path),
            "g1_status": g1.status if g1 else "unreadable" if self.g1_path else "not_recorded",
            "g1_summary": g1 and g1.summary, "g1_admission": g1 and g1.admission.model_dump(mode="json"),
            "g0_complete": bool(g0) and not incomplete, "g1_ready": self.g1_ready,
            "ready_for_decision": not self.problems, "problems": self.problems,
        }


def _planned_strategies(record: G0Record) -> list[str]:
    """The strategies of the record's config; none where it is no list of names."""
    names = record.config.get("strategies")
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def _decision(seen: _Review) -> DecisionRecord:
    g0, g1 = seen.g0, seen.g1
    g0_decision = decide_full_training_adoption(
        [row.model_dump(mode="json") for row in g0.candidates], g0.budget, g0.quality_floor,
        g0.config["repeats"], g0.config["strategies"])
    g1_decision = decide_memory_boundary(summarize_memory_boundary(
        [item.model_dump(mode="json") for item in g1.length_records], g1.budget, g1.quality_floor, g1.status))
    stopped = (_BOUNDARY_LIMIT,) if g1.status == SAFETY_BOUNDARY else ()
    scopes = {
        "full_training_adoption": {"scope": "full_training_adoption", **g0_decision},
        "activation_memory_mechanism": {
            "scope": "activation_memory_isolation", **g1_decision, "promotable_to_full_training": False,
            "evidence_status": g1.status, "tested_seq_lens": [item.seq_len for item in g1.length_records],
            "limitations": [*_ISOLATION_LIMITS, *stopped]},
    }
    rehearsal = seen.run_mode == CPU_REHEARSAL
    return DecisionRecord(
        schema_version=DECISION_SCHEMA, run_label=seen.label, run_mode=seen.run_mode,
        source_g0=seen.results.relative(seen.g0_path), source_g0_sha256=sha256_of(seen.g0_path),
        source_g1=seen.results.relative(seen.g1_path), source_g1_sha256=sha256_of(seen.g1_path),
        top_level_decision_scope="full_training_adoption",
        decision=g0_decision, decision_scopes=scopes, g0_decision=g0_decision, g1_decision=g1_decision,
        handoff={"consumer": CONSUMER, "status": "rehearsal_only" if rehearsal else g0_decision["decision"]},
        provenance=provenance())
