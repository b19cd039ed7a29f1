"""The training baseline every experiment rests on, and the manifest that names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memstrat.candidates import aggregate, compare_first_steps
from memstrat.environment import provenance
from memstrat.errors import IdentityMismatchError, RecordError
from memstrat.journal import Journal
from memstrat.records import (
    MANIFEST_SCHEMA,
    REPORT_SCHEMA,
    STAGE_BASELINE,
    InputManifest,
    ManifestInput,
    TrainingBaseline,
)
from memstrat.runner import Runner, run_all
from memstrat.stages._session import Session, open_session, require_same_identity
from memstrat.storage import read_record, sha256_of

# A baseline says nothing of strategies; everything else of the identity it shares.
_NOT_IN_BASELINE = ("strategies",)


def baseline(label: str, **arguments: Any) -> dict[str, Any]:
    """Measure the workload without any strategy, `repeats` times; write report and manifest.

    A finished report of this label and workload is returned as it is (`record_state:
    already_complete`). Arguments: see `open_session`.

    Raises:
        MemstratError: refused; nothing is recorded.
    """
    session = open_session(label, **arguments)
    session.require_ready()
    with session.results.lock(label), Runner(session.device) as runner:
        return measure_baseline(session, runner)


def measure_baseline(session: Session, runner: Runner) -> dict[str, Any]:
    """`baseline` for a stage that holds the label's lock and a runner already."""
    path = session.file("baseline")
    if path.exists():
        report = read_record(path, TrainingBaseline)
        session.require_own(path, report)
        _require_match(session, path, report)
        _write_manifest(session)
        session.journal_path("baseline").unlink(missing_ok=True)
        return {**report.model_dump(mode="json"), "record_path": session.results.relative(path),
                "record_state": "already_complete"}
    workload = session.workload.replace(strategies=("baseline",))
    journal = Journal(session.journal_path("baseline"), session.journal_header("baseline"))
    runs = run_all(runner, workload, journal, show_progress=session.show_progress, title="baseline")
    runs = compare_first_steps(runs, workload.identity()["amp_dtype"])
    (candidate,) = aggregate(runs, workload.micro_batch)
    result = session.save("baseline", TrainingBaseline(
        schema_version=REPORT_SCHEMA, run_label=session.label, run_mode=session.run_mode, stage=STAGE_BASELINE,
        workload_id=session.workload.workload_id, hardware_id=session.hardware_id, config=_config(session),
        experiment=session.experiment_block(), baseline=candidate, provenance=provenance()))
    _write_manifest(session)
    journal.close()
    return result


def validate_baseline(session: Session, manifest: str | Path | None = None) -> dict[str, Any]:
    """The keys of a G0 record that say which baseline it rests on; loads no model.

    Args:
        manifest: another label's manifest to reuse; the label's own if None.

    Raises:
        MissingRecordError, RecordError: manifest or report missing, edited, or of another schema.
        IdentityMismatchError: another workload (every differing key) or another machine.
    """
    manifest_path = Path(manifest) if manifest else session.file("manifest")
    record = read_record(manifest_path, InputManifest)
    source = next((item for item in record.inputs if item.role == "training_baseline"), None)
    if source is None:
        raise RecordError(f"{manifest_path.name}: inputs must list a training_baseline, got none. "
                          "Make it again with memstrat baseline and another label.")
    path = session.results.absolute(source.path)
    if not path.exists():  # the manifest of another results folder names paths from that folder's root
        path = manifest_path.absolute().parent / Path(source.path).name
    report = read_record(path, TrainingBaseline)
    if sha256_of(path) != source.sha256:
        raise RecordError(f"{path.name}: SHA-256 must be the manifest's {source.sha256[:12]}…, got "
                          f"{sha256_of(path)[:12]}…. The report was edited: restore it, or measure a new baseline "
                          "under another label.")
    _require_match(session, path, report)
    return {
        "source_manifest": session.results.relative(manifest_path.absolute()),
        "source_manifest_sha256": sha256_of(manifest_path),
        "source_baseline": session.results.relative(path), "source_baseline_sha256": source.sha256,
        "baseline_validation": {"status": "matched", "config": report.config},
    }


def _require_match(session: Session, path: Path, report: TrainingBaseline) -> None:
    ours = {key: value for key, value in session.workload.identity().items() if key not in _NOT_IN_BASELINE}
    require_same_identity(path.name, ours, report.config,
                          "Give the flags it was measured with, or measure a new baseline under another label.",
                          only_recorded=True)
    if report.hardware_id != session.hardware_id:
        raise IdentityMismatchError(path.name, {"hardware_id": (session.hardware_id, report.hardware_id)},
                                    "It was measured on another machine or torch: measure a new baseline here.")


def _config(session: Session) -> dict[str, Any]:
    config = {"workload": session.workload.name, **session.workload.identity()}
    fp32_only = () if config["amp_dtype"] else ("amp_dtype", "mode")
    return {key: value for key, value in config.items() if key not in (*_NOT_IN_BASELINE, *fp32_only)}


def _write_manifest(session: Session) -> None:
    path = session.file("baseline")
    session.save("manifest", InputManifest(
        schema_version=MANIFEST_SCHEMA, run_label=session.label, workload_id=session.workload.workload_id,
        hardware_id=session.hardware_id, provenance=provenance(),
        inputs=[ManifestInput(role="training_baseline", path=session.results.relative(path), sha256=sha256_of(path),
                              schema_version=REPORT_SCHEMA)]))
