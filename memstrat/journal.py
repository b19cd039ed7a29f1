"""The run journal: a stopped g0 or g1 loses no finished run.

One JSON line a finished run, behind a header line that says what the runs belong to. A torn last
line (the process died while writing it) is dropped on resume: that run is measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from memstrat.errors import IdentityMismatchError, RecordError
from memstrat.records import Run
from memstrat.storage import storage_error
from memstrat.workload import canonical_json

VERSION = 1
SEAL = "line_sha256"  # of the line's canonical JSON without it: figures of a run are not for editing


class Journal:
    """Finished runs of one label and stage, in the order they ended.

    Args:
        path: the journal file, made if absent.
        header: what must agree to continue: identity, hardware_id, packages, and the stage's own settings.

    Raises:
        IdentityMismatchError: the file belongs to another identity, machine or package set.
        RecordError: a line before the last is not JSON.
    """

    def __init__(self, path: Path, header: dict[str, Any]):
        self.path = path
        self.header = {"journal_version": VERSION, **json.loads(canonical_json(header))}
        self.runs: list[Run] = []
        self.notes: list[dict[str, Any]] = []
        if path.exists():
            self._resume()
        if not path.exists() or path.stat().st_size == 0:
            self._append(self.header)

    def add(self, run: Run) -> None:
        """Append one finished run; it is on disk when this returns."""
        self._append(run.model_dump(mode="json"))
        self.runs.append(run)

    def add_note(self, note: dict[str, Any]) -> None:
        """Append what a stage found out between runs (g1: an admission check), to be kept on resume."""
        self._append({"note": note})
        self.notes.append(note)

    def find(self, name: str, repeat: int, seq_len: int) -> Run | None:
        """The finished run of this strategy, block and length, if there is one."""
        return next((run for run in self.runs
                     if (run.name, run.repeat, run.seq_len) == (name, repeat, seq_len)), None)

    def close(self) -> None:
        """Remove the file: its runs are in the record now."""
        self.path.unlink(missing_ok=True)

    def _append(self, content: dict[str, Any]) -> None:
        line = (canonical_json({**content, SEAL: _seal(content)}) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            size = self.path.stat().st_size if self.path.exists() else 0
            with open(self.path, "ab") as file:
                try:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
                except OSError:
                    os.truncate(self.path, size)
                    raise
        except OSError as error:
            raise storage_error(self.path, error) from None

    def _resume(self) -> None:
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise storage_error(self.path, error) from None
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.split(b"\n")[:-1]
        if not lines:
            os.truncate(self.path, 0)
            return
        try:
            header, *rows = [_read_line(line) for line in lines]
            self.runs = [Run.model_validate(row) for row in rows if "note" not in row]
            self.notes = [row["note"] for row in rows if "note" in row]
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{self.path.name}: must be one JSON object a line as it was written, got "
                              f"{_first_line(error)}. The journal was edited: restore it, or measure again under "
                              "another label.") from None
        differences = _flat_differences(self.header, header)
        if differences:
            raise IdentityMismatchError(
                f"{self.path.name}", differences,
                "Continue on the machine, with the packages and flags it was begun with, or choose another label.")
        if len(whole) < len(data):  # only now: a file that is refused stays as it is
            os.truncate(self.path, len(whole))


def _seal(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def _read_line(line: bytes) -> dict[str, Any]:
    content = json.loads(line)
    if not isinstance(content, dict):
        raise ValueError(f"the line {line[:40]!r}")
    if content.pop(SEAL, None) != _seal(content):
        raise ValueError(f"a line whose content does not hash to its {SEAL}: {line[:40]!r}")
    return content


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _flat_differences(ours: Any, theirs: Any, prefix: str = "") -> dict[str, tuple[object, object]]:
    """Differing leaves of two nested dicts, by dotted key."""
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return {} if ours == theirs else {prefix.rstrip("."): (ours, theirs)}
    found: dict[str, tuple[object, object]] = {}
    for key in dict.fromkeys((*ours, *theirs)):
        found |= _flat_differences(ours.get(key), theirs.get(key), f"{prefix}{key}.")
    return found
