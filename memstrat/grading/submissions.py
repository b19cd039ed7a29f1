"""Find submissions and read their notebooks, whatever wrote them. A broken file is a row with a reason.

Reads JSON only: neither nbformat nor a kernel is needed.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from memstrat.errors import InputError

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
MAX_BYTES = 20 * 2**20
NOT_GRADED = (".json", ".jsonl", ".md", ".csv", ".txt", ".html", ".png", ".svg", ".lock", ".owner", ".pdf")
IGNORED = ("__MACOSX", ".ipynb_checkpoints", ".git")


class Cell(NamedTuple):
    """One code cell of a learner. `ids` holds what may name it: grade_id, then cell ids."""

    source: str
    grade_id: str | None
    ids: tuple[str, ...]


class Submission(NamedTuple):
    """One file of one learner. `reason` says why it could not be read; then there are no cells.

    `record` is the content of an experiment record (`73_*.json`, `76_*.json`), which has no cells.
    """

    learner: str
    name: str
    sha256: str
    cells: list[Cell]
    reason: str | None = None
    record: bytes | None = None


def find_submissions(places: list[Path], ids_file: Path | None = None) -> list[Submission]:
    """All submissions below the given folders, zips and files, sorted by learner and name.

    A file directly in a folder is named after its learner; a file in a subfolder belongs to the
    first subfolder's name. `ids_file` (CSV with `file,learner`) overrides both.
    """
    missing = [place for place in places if not place.exists()]
    if missing:
        raise InputError([f"submissions: must be a folder, a zip or notebooks, got {str(place)!r}, which is not there. "
                          "Check the path." for place in missing])
    known = _read_ids(ids_file) if ids_file else {}
    found = []
    for place in places:
        for name, size, data in _files(place):
            parts = PurePosixPath(name).parts
            learner = known.get(name) or known.get(parts[-1]) or (parts[0] if len(parts) > 1 else Path(name).stem)
            found.append(_read(learner, name, size, data))
    return sorted(found, key=lambda one: (one.learner, one.name))


def _files(place: Path) -> Iterator[tuple[str, int, bytes | None]]:
    """(relative name, size, content or None if it is too large to read)."""
    if place.is_dir():
        for path in sorted(place.rglob("*")):
            relative = path.relative_to(place)
            if path.is_file() and _is_wanted(relative.parts):
                yield relative.as_posix(), *_content(path)
    elif place.suffix.lower() == ".zip":
        try:
            with zipfile.ZipFile(place) as archive:
                for entry in sorted(archive.infolist(), key=lambda item: item.filename):
                    if not entry.is_dir() and _is_wanted(PurePosixPath(entry.filename).parts):
                        # read no further than the limit: the size a zip states may be a lie
                        with archive.open(entry) as file:
                            data = file.read(MAX_BYTES + 1)
                        yield entry.filename, max(len(data), entry.file_size), data if len(data) <= MAX_BYTES else None
        except (zipfile.BadZipFile, OSError, RuntimeError, EOFError):
            yield place.name, 0, b""
    else:
        yield place.name, *_content(place)


def _content(path: Path) -> tuple[int, bytes | None]:
    try:
        size = path.stat().st_size
        return size, path.read_bytes() if size <= MAX_BYTES else None
    except OSError:
        return 0, b""


def _is_wanted(parts: tuple[str, ...]) -> bool:
    if any(part in IGNORED for part in parts) or parts[-1].startswith("."):
        return False
    return is_record(parts[-1]) or not ({".memstrat", "my_work"} & set(parts) or parts[-1].endswith(NOT_GRADED))


def is_record(name: str) -> bool:
    """True for the file name of an experiment record."""
    return name.startswith(("73_training_baseline_", "76_")) and name.endswith(".json")


def clean(text: str) -> str:
    """Without control characters and lone surrogates, which neither XML nor UTF-8 can hold."""
    return _CONTROL.sub("?", text)


def _read(learner: str, name: str, size: int, data: bytes | None) -> Submission:
    learner, name = clean(learner), clean(name)
    digest = hashlib.sha256(data or b"").hexdigest()
    if is_record(PurePosixPath(name).name) and data is not None:
        return Submission(learner, name, digest, [], record=data)
    if data is None:
        return Submission(learner, name, digest, [], f"larger than {MAX_BYTES // 2**20} MiB ({size // 2**20} MiB)")
    if not data.strip():
        return Submission(learner, name, digest, [], "empty file")
    try:
        content = json.loads(data.decode("utf-8-sig"))
        return Submission(learner, name, digest, list(read_cells(content)))
    except (UnicodeDecodeError, ValueError, RecursionError):
        return Submission(learner, name, digest, [], "not a notebook: no JSON")
    except (AttributeError, KeyError, TypeError):
        return Submission(learner, name, digest, [], "not a notebook: no cells")


def read_cells(content: Any) -> Iterator[Cell]:
    """Code cells of a notebook of format 3 or 4, as Jupyter, Colab or VS Code store them."""
    sheets = content["worksheets"] if "worksheets" in content else [content]
    for sheet in sheets:
        for cell in sheet["cells"]:
            if cell.get("cell_type") != "code":
                continue
            source = cell.get("source", cell.get("input", ""))
            metadata = cell.get("metadata") if isinstance(cell.get("metadata"), dict) else {}
            grading = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
            ids = [cell.get("id"), metadata.get("id"), metadata.get("name")]
            text = source if isinstance(source, str) else "".join(str(line) for line in source)
            yield Cell(text.replace("\r\n", "\n"), grading.get("grade_id"),
                       tuple(one for one in ids if isinstance(one, str)))


def _read_ids(path: Path) -> dict[str, str]:
    try:
        reader = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig")))
        if not {"file", "learner"} <= set(reader.fieldnames or ()):
            raise KeyError("columns")
        return {row["file"]: row["learner"] for row in reader}
    except (OSError, UnicodeDecodeError, KeyError, csv.Error):
        raise InputError(f"ids: must be a CSV file with the columns file and learner, got {path.name}. "
                         "Write a header line 'file,learner'.") from None
