"""Where records lie, and how they get there: whole, once, and never over one another.

Also the lock that keeps two processes off one label, and the journal that keeps finished runs.
Works on local file systems and on those without hard links (mounted drives).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from memstrat.errors import (
    InputError,
    LabelError,
    LabelLockedError,
    MissingRecordError,
    RecordConflictError,
    RecordError,
    StorageError,
)
from memstrat.records import (
    CPU_REHEARSAL,
    REAL_GPU,
    SCHEMA_VERSIONS,
    STAGE_BASELINE,
    STAGE_G0,
    STAGE_G1,
    G0Record,
    G1Record,
    TopRecord,
    TrainingBaseline,
    content_sha256,
)
from memstrat.workload import canonical_json

Top = TypeVar("Top", bound=TopRecord)
_STAGES = {TrainingBaseline: STAGE_BASELINE, G0Record: STAGE_G0, G1Record: STAGE_G1}
_KINDS = {
    "baseline": "73_training_baseline_{label}.json",
    "manifest": "76_input_manifest_{label}.json",
    "g0": "76_{mode}_memory_{label}.json",
    "g1": "76_{mode}_memory_boundary_{label}.json",
    "decision": "76_memory_strategy_decision_{label}.json",
}


class ResultsFolder:
    """The folder of one set of records, and the paths relative to what holds `benchmarks/`."""

    def __init__(self, path: str | Path | None = None):
        self.path = _find_results_dir(path).absolute()
        inside = self.path.parent.name == "benchmarks"
        self.root = self.path.parent.parent if inside else self.path.parent

    def file(self, kind: str, label: str, run_mode: str = REAL_GPU) -> Path:
        """Path of one record: kind is baseline, manifest, g0, g1 or decision."""
        return self.path / _KINDS[kind].format(label=label, mode=run_mode)

    def relative(self, path: Path) -> str:
        """How a record names a file: relative to the folder that holds `benchmarks/`, with slashes."""
        return Path(os.path.relpath(path, self.root)).as_posix()

    def absolute(self, relative: str) -> Path:
        """The file that a record names."""
        return self.root / relative

    def require_writable(self) -> None:
        """Make the folder and its work area. Raises `StorageError` if that cannot be done."""
        try:
            (self.path / ".memstrat").mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise storage_error(self.path, error) from None

    def run_mode_of(self, label: str) -> str | None:
        """The run mode that this label's records belong to, or None for a new label."""
        for mode in (REAL_GPU, CPU_REHEARSAL):
            if any(self.file(kind, label, mode).exists() for kind in ("g0", "g1")):
                return mode
        report = self.file("baseline", label)
        if report.exists():
            return read_record(report, TrainingBaseline).run_mode
        return None

    def require_mode(self, label: str, run_mode: str) -> None:
        """Refuse a label whose records were made on the other kind of device."""
        found = self.run_mode_of(label)
        if found is not None and found != run_mode:
            raise LabelError(f"label: must be of run mode {run_mode}, got {label!r}, whose records are {found}. "
                             "Choose another label: a rehearsal and a GPU result never share one.")

    @contextlib.contextmanager
    def lock(self, label: str) -> Iterator[None]:
        """Hold the label while the block runs; a dead process's lock does not block.

        Raises:
            LabelLockedError: another living process works on the label.
        """
        self.require_writable()
        path = self.path / ".memstrat" / f"{label}.lock"
        owner = path.with_suffix(".owner")
        try:
            lock = FileLock(path)
            lock.acquire(timeout=0)
        except Timeout:
            raise LabelLockedError(f"label: must not be in use by another process, got {label!r}, held by process "
                                   f"{_read_pid(owner)}. Wait until it ends, or choose another label.") from None
        except OSError as error:
            raise storage_error(path, error) from None
        try:
            with contextlib.suppress(OSError):  # a full disk: the lock holds, only its owner has no name
                owner.write_text(str(os.getpid()))
            yield
        finally:
            with contextlib.suppress(OSError):
                owner.unlink(missing_ok=True)
            lock.release()


def sha256_of(path: Path) -> str:
    """SHA-256 of the file's bytes. Raises `RecordError` if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise RecordError(f"{path.name}: must be a file that can be read, got: {error.strerror}. Restore it.") from None


def read_json(path: Path) -> dict[str, Any]:
    """A record's raw content.

    Raises:
        MissingRecordError, RecordError: the file is absent, truncated, or no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
        canonical_json(content).encode()  # refuses what a record cannot hold: 1e999, half a character
    except FileNotFoundError:
        raise MissingRecordError(f"{path.name}: must exist in {shown_path(path.parent)}, got no such file. "
                                 "Run the stage that writes it, or check --label and --results-dir.") from None
    except OSError as error:
        raise RecordError(f"{path.name}: must be a file that can be read, got: {error.strerror}. "
                          "Mend it, or choose another label.") from None
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path.name}: must be complete JSON, got {error}. The file is truncated or was edited: "
                          "restore it, or measure again under another label.") from None
    if not isinstance(content, dict):
        raise RecordError(f"{path.name}: must be a JSON object, got {type(content).__name__}. Restore the file.")
    return content


def read_record(path: Path, model: type[Top]) -> Top:
    """A record, checked against its schema version, its types and its own content hash.

    Raises:
        MissingRecordError: no such file.
        RecordError: truncated, another schema version or stage, a field of the wrong type, or edited.
    """
    content = read_json(path)
    check_schema_version(path, content, SCHEMA_VERSIONS[model])
    stage = _STAGES.get(model)
    if stage and content.get("stage") != stage:
        raise RecordError(f"{path.name}: stage must be {stage}, got {content.get('stage')!r}. "
                          "This is another stage's file: check its name.")
    try:
        record = model.model_validate(content)
    except ValidationError as error:
        lines = [f"{path.name}: {'.'.join(map(str, item['loc']))} {item['msg'][:1].lower()}{item['msg'][1:]}"
                 for item in error.errors()]
        raise RecordError("\n".join([*lines, "Restore the file, or measure again under another label."])) from None
    if record.content_sha256 not in (None, content_sha256(content)):
        raise RecordError(f"{path.name}: content must hash to its content_sha256 {record.content_sha256[:12]}…, got "
                          f"{content_sha256(content)[:12]}…. It was edited after it was written: restore it, "
                          "or measure again under another label.")
    return record


def check_schema_version(path: Path, content: dict[str, Any], expected: str) -> None:
    """Refuse a record of an older, newer or unknown schema."""
    found = content.get("schema_version")
    if found == expected:
        return
    name, _, number = expected.rpartition("/v")
    found_name, _, found_number = str(found).rpartition("/v")
    hint = "It is no record of this kind: check the file name."
    if found_name == name and found_number.isdigit():
        newer = int(found_number) > int(number)
        hint = "It is newer: update memstrat." if newer else "It is older: measure again under another label."
    raise RecordError(f"{path.name}: schema_version must be {expected}, got {found!r}. {hint}")


def write_once(path: Path, record: TopRecord) -> str:
    """Write a record whole, or not at all; never over another.

    Returns:
        `written`, or `already_complete` if the same content (provenance aside) is there.

    Raises:
        RecordConflictError: other content is there. StorageError: the folder or disk refuses.
    """
    content = record.model_dump(mode="json", exclude={"content_sha256"})
    content["content_sha256"] = content_sha256(content)
    if path.exists():
        return _compare_existing(path, content)
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        _place(temporary, path)
    except FileExistsError:
        return _compare_existing(path, content)
    except OSError as error:
        raise storage_error(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)
    return "written"


def _place(temporary: Path, path: Path) -> None:
    """Give the finished file its name only if nobody has it yet."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES):
            raise
        if path.exists():  # no hard links here: the label's lock keeps others away meanwhile
            raise FileExistsError(errno.EEXIST, "exists", str(path)) from None
        os.replace(temporary, path)


def _compare_existing(path: Path, content: dict[str, Any]) -> str:
    if content_sha256(read_json(path)) == content["content_sha256"]:
        return "already_complete"
    raise RecordConflictError(f"{path.name}: must not exist with other content, got a record that differs. "
                              "It stays as it is: run again under another label.")


def _read_pid(owner: Path) -> str:
    try:
        return owner.read_text(encoding="utf-8") or "unknown"
    except (OSError, ValueError):
        return "unknown"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the constant {name}, which JSON does not have")


def _find_results_dir(path: str | Path | None) -> Path:
    if path or os.environ.get("MEMSTRAT_RESULTS_DIR"):
        return Path(path or os.environ["MEMSTRAT_RESULTS_DIR"])
    here = Path.cwd()
    checkout = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    return checkout / "benchmarks" / "results"


def shown_path(path: Path) -> str:
    """A folder as people read it: relative to where they are, if it lies below."""
    try:
        return str(path.relative_to(Path.cwd())) or "."
    except ValueError:
        return str(path)


def storage_error(path: Path, error: OSError) -> StorageError:
    if error.errno == errno.ENOSPC:
        return StorageError(f"{shown_path(path)}: must have free disk space, got a full disk. Free some and run the "
                            "same label again: finished runs are kept.")
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        raise InputError(f"results_dir: must be a folder, got {shown_path(path)}, which is or lies below a file. "
                         "Choose another --results-dir.") from None
    return StorageError(f"{shown_path(path)}: must be writable, got {error.strerror or error}. "
                        "Choose another --results-dir or mend its permissions.")
