"""Prepare: read what is there and say what is missing. Loads no model, writes nothing."""

from __future__ import annotations

import os
from typing import Any

from memstrat.environment import preflight
from memstrat.errors import MemstratError
from memstrat.models import locate_model
from memstrat.records import G0Record
from memstrat.stages._baseline import validate_baseline
from memstrat.stages._close import review
from memstrat.stages._session import Session, open_session
from memstrat.storage import ResultsFolder, read_record
from memstrat.workload import PLACEHOLDER_LABEL, find_in_checkout


def prepare(label: str = PLACEHOLDER_LABEL, **arguments: Any) -> dict[str, Any]:
    """What this machine, folder and label offer, and which command makes what is missing.

    Accepts the placeholder label. Arguments: see `open_session`.

    Returns:
        `ready`, `problems` and `next_actions`; `preflight`; `model` (where weights would come from);
        `results` (folder, writable); `manifest` (status and reason); `records` (the label's review)
        and, where the label has none, `reference` (the preset's committed record, marked as such).

    Raises:
        MemstratError: the arguments themselves break a rule.
    """
    session = open_session(label, allow_placeholder=True, **arguments)
    report = preflight(session.experiment, session.device)
    problems, actions = list(report["reasons"]), list(report["next_actions"])
    problems += session.model_problems()
    for check in (session.experiment.require_budget, lambda: session.results.require_mode(label, session.run_mode)):
        try:
            check()
        except MemstratError as error:
            problems.append(str(error))
    records = None if label == PLACEHOLDER_LABEL else review(label, results_dir=session.results.path)
    if records is not None and not (records["g0_path"] or records["g1_path"]):
        records = None
    writable = _is_writable(session.results)
    if not writable:
        problems.append(f"results folder {session.results.relative(session.results.path)} cannot be written. "
                        "Choose another --results-dir.")
    manifest = _manifest_state(session)
    actions.append(_next_command(session, records, manifest, _flags_of(arguments)))
    return {
        "run_label": label, "run_mode": session.run_mode, "ready": not problems, "problems": problems,
        "next_actions": actions, "preflight": report, "workload": session.config_block(),
        "budget": session.experiment.budget and session.experiment.budget.model_dump(),
        "about": session.experiment.about, "model": _model_state(session),
        "results": {"folder": session.results.relative(session.results.path), "writable": writable},
        "manifest": manifest, "records": records,
        "reference": _reference(session) if records is None else None,
    }


def _model_state(session: Session) -> dict[str, Any]:
    location = locate_model(session.workload)
    return {"model_id": location.model_id, "weights": location.weights, "place": location.place,
            "is_ready": location.is_ready, "needs_download": location.needs_download, "note": location.describe()}


def _is_writable(results: ResultsFolder) -> bool:
    """True if records could be written: the folder, or the nearest one above that exists, allows it."""
    folder = next(path for path in (results.path, *results.path.parents) if path.exists())
    return folder.is_dir() and os.access(folder, os.W_OK)


def _manifest_state(session: Session) -> dict[str, Any]:
    path = session.results.file("manifest", session.label)
    if session.label == PLACEHOLDER_LABEL or not path.exists():
        return {"status": "missing", "reason": "no training baseline of this label yet",
                "made_by": "memstrat baseline, or memstrat g0, which measures it first"}
    try:
        return {"status": "matched", **validate_baseline(session)}
    except MemstratError as error:
        return {"status": "refused", "reason": str(error)}


def _flags_of(arguments: dict[str, Any]) -> str:
    """How the next stage takes up what was given here: the preset by name, all else by a reminder."""
    given = {key for key, value in arguments.items() if value is not None
             and key not in ("progress", "say") and (key, value) != ("device", "auto")}
    named = f" --preset {arguments['preset']}" if "preset" in given else ""
    return f"{named}, with the {'other ' if named else ''}flags given here" if given - {"preset"} else named


def _next_command(session: Session, records: dict[str, Any] | None, manifest: dict[str, Any], flags: str) -> str:
    if session.label == PLACEHOLDER_LABEL:
        return "Choose a label of your own: set RUN_LABEL, or give --label."
    if manifest["status"] == "refused":
        return manifest["reason"]
    if records is None:
        return f"Run memstrat g0 --label {session.label}{flags}."
    if records["g1_path"] is None:
        return f"Run memstrat g1 --label {session.label}{flags}."
    if records["ready_for_decision"]:
        return f"Run memstrat close --label {session.label}."
    return f"Run memstrat review --label {session.label} and mend the problems it lists."


def _reference(session: Session) -> dict[str, Any] | None:
    """The preset's committed G0 record: somebody else's machine, to read before measuring."""
    label = session.experiment.reference_label
    if label is None:
        return None
    folder = ResultsFolder(find_in_checkout("benchmarks/results"))
    mode = folder.run_mode_of(label)
    if mode is None:
        return None
    record = read_record(folder.file("g0", label, mode), G0Record)
    return {"is_reference": True, "note": "Measured on another machine; not a result of this one.",
            "run_label": label, "run_mode": mode, "record_path": folder.relative(folder.file("g0", label, mode)),
            "device": record.experiment.get("device"), "summary": record.summary,
            "candidate_rows": [row.model_dump(mode="json", exclude={"runs"}) for row in record.candidates]}
