"""G1: longer sequences under SGD without momentum, so that activations are what grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memstrat.boundary import decide_memory_boundary, summarize_memory_boundary
from memstrat.candidates import aggregate, compare_first_steps
from memstrat.environment import provenance
from memstrat.errors import MissingRecordError, RecordConflictError
from memstrat.estimate import Device, TraceSettings, estimate_peak_bytes
from memstrat.journal import Journal
from memstrat.records import (
    REPORT_SCHEMA,
    STAGE_G1,
    Admission,
    AdmissionCheck,
    Candidate,
    G0Record,
    G1Record,
    LengthRecord,
)
from memstrat.runner import Runner, run_all
from memstrat.stages._g0 import load_g0
from memstrat.stages._session import Session, open_session
from memstrat.storage import sha256_of
from memstrat.units import bytes_to_mib, mib_to_bytes
from memstrat.workload import isolate_activations

MIN_MARGIN_MB, MARGIN_RATIO = 2048.0, 0.15
PROJECTION = "conservative_linear_from_previous_sgd_peak_allocated"


def g1(label: str, *, free_memory_mb: Callable[[], float] | None = None, **arguments: Any) -> dict[str, Any]:
    """Measure the base length, then each longer one that is admitted, and write the G1 record.

    Never probes by running out of memory: a length is tried only if the peak projected from the
    last measured baseline, and the estimate where there is one, fit free memory minus a margin.

    Args:
        label: must have a G0 record of the same identity.
        free_memory_mb: answers the free memory in MiB; None reads the device (or available RAM).
        arguments: see `open_session`.

    Returns:
        The record (contract, section 3) with `record_path` and `record_state`.

    Raises:
        MissingRecordError, IdentityMismatchError, RecordConflictError, MemstratError: refused.
    """
    session = open_session(label, **arguments)
    session.results.require_mode(label, session.run_mode)
    g0_record = _require_g0(session)
    session.require_ready()
    with session.results.lock(label), Runner(session.device) as runner:
        g0_sha256 = sha256_of(session.file("g0"))
        journal = Journal(session.journal_path("g1"), session.journal_header(
            "g1", source_g0_sha256=g0_sha256, ladder=list(session.experiment.ladder)))
        read_free = free_memory_mb or (lambda: runner.call("memstrat.environment:free_memory_mb", session.device))
        climb = _Climb(session, runner, journal, read_free)
        climb.run()
        result = session.save("g1", _record(session, g0_record, g0_sha256, climb))
        journal.close()
    return result


def estimate_baseline_mb(session: Session, seq_len: int) -> float | None:
    """Predicted peak allocated (MiB) of the baseline at one length; None where the model cannot be traced."""
    hardware = session.hardware
    if session.device == "cpu":
        settings = TraceSettings(is_cpu=True)
    else:
        capability = tuple(int(part) for part in hardware["capability"].split("."))
        settings = TraceSettings(Device(hardware["device"], mib_to_bytes(hardware["total_memory_mb"]), capability))
    try:
        workload = isolate_activations(session.workload, seq_len)
        return bytes_to_mib(estimate_peak_bytes(workload, "baseline", settings=settings))
    except Exception as error:  # a model that cannot be traced must not cost the ladder what was measured
        session.say(f"no estimate beside the projection at length {seq_len}: {error}")
        return None


class _Climb:
    """The walk up the ladder: what was measured, what was admitted, and why it ended."""

    def __init__(self, session: Session, runner: Runner, journal: Journal, read_free: Callable[[], float]):
        self.session, self.runner, self.journal, self.read_free = session, runner, journal, read_free
        self.total_mb = session.hardware["total_memory_mb"]
        self.margin_mb = max(MIN_MARGIN_MB, MARGIN_RATIO * self.total_mb)
        self.lengths: list[LengthRecord] = []
        self.checks: list[AdmissionCheck] = []
        self.status, self.reason = "completed", None

    def run(self) -> None:
        base = self.session.workload.seq_len
        baseline = self._measure(base, "g1_sgd_baseline")
        if baseline.status != "ok":
            self.status, self.reason = "blocked", "base_length_baseline_failed"
            return
        for seq_len in self.session.experiment.ladder:
            check = self._admit(seq_len, baseline)
            self.checks.append(check)
            if check.status == "blocked":
                self.status = "completed_with_safety_boundary" if len(self.lengths) > 1 else "blocked"
                self.reason = "safety_headroom_guard"
                return
            baseline = self._measure(seq_len, "g1_sgd")
            if baseline.status != "ok":
                self.status, self.reason = "completed_with_safety_boundary", "longer_length_baseline_failed"
                return

    def _measure(self, seq_len: int, source: str) -> Candidate:
        workload = isolate_activations(self.session.workload, seq_len)
        runs = run_all(self.runner, workload, self.journal, show_progress=self.session.show_progress,
                       title=f"g1, length {seq_len}")
        candidates = aggregate(compare_first_steps(runs, workload.identity()["amp_dtype"]), workload.micro_batch)
        self.lengths.append(LengthRecord(seq_len=seq_len, source=source, candidates=candidates))
        return next(candidate for candidate in candidates if candidate.name == "baseline")

    def _admit(self, seq_len: int, previous: Candidate) -> AdmissionCheck:
        for note in self.journal.notes:  # a resumed ladder keeps what it was admitted by
            if note.get("seq_len") == seq_len and note.get("status") == "admitted":
                return AdmissionCheck.model_validate(note)
        free_mb = self.read_free()
        limit_mb = free_mb - self.margin_mb
        projected_mb = previous.peak_memory_mb * seq_len / previous.seq_len
        estimated_mb = estimate_baseline_mb(self.session, seq_len)
        peaks = {"projection": projected_mb, "estimate": estimated_mb}
        passed = [name for name, peak_mb in peaks.items() if peak_mb is not None and peak_mb <= limit_mb]
        blocked = any(peak_mb is not None and peak_mb > limit_mb for peak_mb in peaks.values())
        check = AdmissionCheck(
            seq_len=seq_len, status="blocked" if blocked else "admitted", free_memory_mb=free_mb,
            safety_margin_mb=self.margin_mb, safe_process_limit_mb=limit_mb, projected_peak_mb=projected_mb,
            projection=PROJECTION, estimated_peak_mb=estimated_mb, admitted_by=passed)
        self.journal.add_note(check.model_dump(mode="json"))
        return check

    def admission(self) -> Admission:
        num_admitted = sum(check.status == "admitted" for check in self.checks)
        if not self.checks:
            status = "not_evaluated"
        elif num_admitted == 0:
            status = "blocked"
        else:
            status = "admitted" if num_admitted == len(self.checks) else "partially_admitted"
        return Admission(status=status, total_memory_mb=self.total_mb, safety_margin_mb=self.margin_mb,
                         checks=self.checks)


def _require_g0(session: Session) -> G0Record:
    path = session.file("g0")
    if not path.exists():
        raise MissingRecordError(f"{path.name}: must exist before g1, got no such file. Run memstrat g0 "
                                 f"--label {session.label} first; g1 never runs it by itself.")
    record = load_g0(session)
    if session.file("g1").exists():
        raise RecordConflictError(f"{session.file('g1').name}: must not exist yet, got a finished G1 of this label. "
                                  "It stays as it is: read it with memstrat show, or measure under another label.")
    return record


def _record(session: Session, g0_record: G0Record, g0_sha256: str, climb: _Climb) -> G1Record:
    floor = g0_record.quality_floor
    lengths = [record.model_dump(mode="json") for record in climb.lengths]
    summary = summarize_memory_boundary(lengths, g0_record.budget, floor, climb.status)
    sgd = isolate_activations(session.workload, session.workload.seq_len)
    config = {**session.config_block(sgd), "optimizer_momentum": sgd.optimizer.momentum,
              "seq_lens": [sgd.seq_len, *session.experiment.ladder],
              "comparison_scope": "activation_memory_isolation"}
    return G1Record(
        schema_version=REPORT_SCHEMA, run_label=session.label, run_mode=session.run_mode, stage=STAGE_G1,
        workload_id=session.workload.workload_id, hardware_id=session.hardware_id,
        source_g0=session.results.relative(session.file("g0")), source_g0_sha256=g0_sha256,
        status=climb.status, reason=climb.reason, config=config, experiment=session.experiment_block(sgd),
        budget=g0_record.budget, quality_floor=floor, admission=climb.admission(), length_records=climb.lengths,
        summary=summary, assessment=decide_memory_boundary(summary), provenance=provenance())
