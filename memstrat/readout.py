"""Everything recorded under a label, read leniently for tables and figures.

Records made elsewhere are read too: what they lack is missing, never invented, and what speaks
against trusting a file becomes a warning beside it. Stages read strictly instead (see `storage`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memstrat.errors import InputError, MemstratError, MissingRecordError
from memstrat.records import CPU_REHEARSAL, REAL_GPU, DecisionRecord, G0Record, G1Record, TrainingBaseline
from memstrat.storage import ResultsFolder, read_json, read_record
from memstrat.workload import check_label

_MODELS = {"baseline": TrainingBaseline, "g0": G0Record, "g1": G1Record, "decision": DecisionRecord}


@dataclass(frozen=True)
class Readout:
    """Raw records by kind (`None` where there is none), and why a reader should be careful."""

    label: str
    folder: Path
    baseline: dict[str, Any] | None = None
    g0: dict[str, Any] | None = None
    g1: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None
    paths: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the records as they are, with paths and warnings."""
        return {"label": self.label, "paths": self.paths, "warnings": self.warnings,
                **{kind: getattr(self, kind) for kind in _MODELS}}


def read_label(label: str, results_dir: str | Path | None = None) -> Readout:
    """All records of a label.

    Raises:
        LabelError: the label is unsafe. MissingRecordError: nothing is recorded under it.
    """
    results = ResultsFolder(results_dir)
    check_label(label)
    files = {}
    for kind in _MODELS:
        candidates = (results.file(kind, label, mode) for mode in (REAL_GPU, CPU_REHEARSAL))
        files[kind] = next((path for path in candidates if path.exists()), None)
    files = {kind: path for kind, path in files.items() if path}
    if not files:
        raise MissingRecordError(f"label: must have records in {results.relative(results.path)}, got none for "
                                 f"{label!r}. Run memstrat g0 with it, or check --results-dir.")
    return _read(label, results.path, {kind: (path, results.relative(path)) for kind, path in files.items()})


def read_file(path: str | Path) -> Readout:
    """One G0 or G1 record by its file, wherever it was made.

    Raises:
        MissingRecordError, RecordError: no such file, or no JSON object. InputError: no record of candidates.
    """
    path = Path(path)
    content = read_json(path)
    kind = "g1" if "length_records" in content else "g0" if "candidates" in content else None
    if kind is None:
        raise InputError(f"{path.name}: must be a G0 or G1 record, with candidates or length_records, got neither. "
                         "Give the file that g0 or g1 wrote.")
    return _read(str(content.get("run_label") or path.stem), path.absolute().parent, {kind: (path, path.name)})


def list_rows(holder: Any, key: str) -> list[dict[str, Any]]:
    """The dicts in a list of a raw record; none where the record has no such list."""
    rows = holder.get(key) if isinstance(holder, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def read_table(holder: Any, key: str) -> dict[str, Any]:
    """A nested table of a raw record; an empty one where the record has no such table."""
    table = holder.get(key) if isinstance(holder, dict) else None
    return table if isinstance(table, dict) else {}


def _read(label: str, folder: Path, files: dict[str, tuple[Path, str]]) -> Readout:
    contents, warnings = {}, []
    for kind, (path, _) in files.items():
        contents[kind] = read_json(path)
        try:
            read_record(path, _MODELS[kind])
        except MemstratError as error:
            warnings.append(str(error))
    return Readout(label, folder, **contents, paths={kind: shown for kind, (_, shown) in files.items()},
                   warnings=warnings)
