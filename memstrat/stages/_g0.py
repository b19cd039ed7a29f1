"""G0: every strategy on the fixed workload, `repeats` times, interleaved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memstrat.candidates import aggregate, compare_first_steps, standard_metrics, summarize_repeats
from memstrat.decision import default_quality_floor, summarize_memory_strategy_candidates
from memstrat.environment import provenance
from memstrat.journal import Journal
from memstrat.records import REPORT_SCHEMA, STAGE_G0, G0Record, Run
from memstrat.runner import Runner, run_all
from memstrat.stages._baseline import measure_baseline, validate_baseline
from memstrat.stages._session import Session, open_session, require_same_identity
from memstrat.storage import read_record


def g0(label: str, *, manifest: str | Path | None = None, **arguments: Any) -> dict[str, Any]:
    """Measure every strategy and write the G0 record; out of memory and failures are rows.

    With a finished record of this label it measures nothing and returns it with `g0_reused: true`.
    Makes the training baseline first if the label has none and no manifest is given, and says so.

    Args:
        label: names the records. manifest: another label's input manifest to rest on.
        arguments: see `open_session`.

    Returns:
        The record (contract, section 3) with `record_path` and `record_state`.

    Raises:
        MemstratError: refused; nothing is recorded.
    """
    session = open_session(label, **arguments)
    session.experiment.require_budget()
    session.results.require_mode(label, session.run_mode)
    path = session.file("g0")
    if path.exists():
        return _reuse(session, path)
    report = session.require_ready()
    with session.results.lock(label), Runner(session.device) as runner:
        if path.exists():  # another process finished it while this one waited
            return _reuse(session, path)
        if manifest is None and not session.file("manifest").exists():
            session.say(f"{label} has no training baseline yet: measuring it first.")
            measure_baseline(session, runner)
        sources = validate_baseline(session, manifest)
        journal = Journal(session.journal_path("g0"), session.journal_header("g0", **_source_hashes(sources)))
        runs = run_all(runner, session.workload, journal, show_progress=session.show_progress, title="g0")
        result = session.save("g0", _record(session, runs, sources, report))
        journal.close()
    return result


def load_g0(session: Session) -> G0Record:
    """The label's G0 record, if it is of this session's identity.

    Raises:
        MissingRecordError, RecordError, IdentityMismatchError
    """
    path = session.file("g0")
    record = read_record(path, G0Record)
    session.require_own(path, record)
    require_same_identity(path.name, session.workload.identity(), record.config,
                          "Give the flags G0 was measured with, or choose another label.")
    return record


def _reuse(session: Session, path: Path) -> dict[str, Any]:
    record = load_g0(session)
    session.journal_path("g0").unlink(missing_ok=True)  # left if the stage was killed once its record was written
    return {**record.model_dump(mode="json"), "g0_reused": True, "record_path": session.results.relative(path),
            "record_state": "already_complete"}


def _source_hashes(sources: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sources.items() if key.endswith("sha256")}


def _record(session: Session, runs: list[Run], sources: dict[str, Any], report: dict[str, Any]) -> G0Record:
    workload, budget = session.workload, session.experiment.require_budget().model_dump()
    candidates = aggregate(compare_first_steps(runs, workload.identity()["amp_dtype"]), workload.micro_batch)
    rows = [candidate.model_dump(mode="json") for candidate in candidates]
    floor = default_quality_floor(next(row for row in rows if row["name"] == "baseline"),
                                  session.experiment.max_val_loss)
    level = "bf16_capacity_strategy_smoke" if workload.dtype_mode == "bf16" else "fixed_workload_strategy_smoke"
    return G0Record(
        schema_version=REPORT_SCHEMA, run_label=session.label, run_mode=session.run_mode, stage=STAGE_G0,
        workload_id=workload.workload_id, hardware_id=session.hardware_id, g0_reused=False,
        environment_preflight=report, **sources, evidence_level=level, config=session.config_block(),
        budget=budget, quality_floor=floor, candidates=candidates,
        summary=summarize_memory_strategy_candidates(rows, budget, floor),
        repeat_summary=summarize_repeats(candidates), experiment=session.experiment_block(),
        standard_metrics=standard_metrics(candidates), provenance=provenance())
