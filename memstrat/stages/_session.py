"""What every stage begins with: label, experiment, device, folder; and what records share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from memstrat import strategies_extra as strategies_extra  # registers them, so that a workload may name them
from memstrat.environment import hardware_facts, hardware_id, package_versions, preflight, resolve_device
from memstrat.errors import IdentityMismatchError, ModelError, NotReadyError, RecordError
from memstrat.experiment import Experiment, load_experiment
from memstrat.models import find_problems
from memstrat.records import CPU_REHEARSAL, REAL_GPU, TopRecord
from memstrat.storage import ResultsFolder, write_once
from memstrat.workload import Workload, check_label


@dataclass(frozen=True)
class Session:
    """One stage's run intent, resolved. Nothing of the model is loaded yet."""

    label: str
    experiment: Experiment
    device: str
    results: ResultsFolder
    show_progress: bool = True
    say: Callable[[str], None] = print  # notes for people; the command line sends them to stderr

    @property
    def workload(self) -> Workload:
        return self.experiment.workload

    @property
    def run_mode(self) -> str:
        return REAL_GPU if self.device == "cuda" else CPU_REHEARSAL

    @cached_property
    def hardware(self) -> dict[str, Any]:
        return hardware_facts(self.device)

    @cached_property
    def hardware_id(self) -> str:
        return hardware_id(self.hardware)

    def file(self, kind: str) -> Path:
        return self.results.file(kind, self.label, self.run_mode)

    def journal_path(self, stage: str) -> Path:
        return self.results.path / ".memstrat" / f"{stage}_{self.run_mode}_{self.label}.jsonl"

    def journal_header(self, stage: str, **settings: Any) -> dict[str, Any]:
        """What must agree for a stopped stage to continue."""
        return {"stage": stage, "label": self.label, "identity": self.workload.identity(),
                "hardware_id": self.hardware_id, "packages": package_versions(), **settings}

    def require_ready(self) -> dict[str, Any]:
        """The preflight report, if this machine can run the workload and the model can be had.

        Raises:
            NotReadyError, ModelError, DataError, LabelError, StorageError: before any model is loaded.
        """
        self.results.require_mode(self.label, self.run_mode)
        self.results.require_writable()
        report = preflight(self.experiment, self.device)
        if not report["ready"]:
            raise NotReadyError("This machine cannot run the workload:", report["reasons"],
                                " ".join(report["next_actions"]))
        problems = self.model_problems()
        if problems:
            raise ModelError("\n".join(problems))
        for warning in report.get("warnings", ()):
            self.say(f"warning: {warning}")
        return report

    def require_own(self, path: Path, record: TopRecord) -> None:
        """Refuse a file that was copied under this label's name.

        Raises:
            RecordError: naming label and run mode, where they differ.
        """
        problems = [f"{path.name}: {key} must be {expected!r}, got {getattr(record, key)!r}. A record belongs to what "
                    "it was measured as: remove the copy, or choose another label."
                    for key, expected in (("run_label", self.label), ("run_mode", self.run_mode))
                    if getattr(record, key) != expected]
        if problems:
            raise RecordError("\n".join(problems))

    def model_problems(self) -> list[str]:
        """What stops the model or its data at the ladder's longest length; nothing is loaded."""
        return find_problems(self.workload.replace(seq_len=max((self.workload.seq_len, *self.experiment.ladder))))

    def experiment_block(self, measured: Workload | None = None) -> dict[str, Any]:
        """`experiment` of a report: the facts a reader compares across projects of the series."""
        workload = measured or self.workload
        return {"model": workload.model_id, "backend": self.device, "dtype": workload.dtype_mode,
                "optimizer": workload.optimizer.name, "batch_size": workload.micro_batch, "seq_len": workload.seq_len,
                "warmup": workload.warmup, "iters": workload.iters, "seed": workload.seed,
                "device": self.hardware["device"], "torch": self.hardware["torch"],
                "cuda": package_versions().get("cuda"), "workload": workload.name}

    def config_block(self, measured: Workload | None = None) -> dict[str, Any]:
        """`config` of a report: what was measured, by identity fields, and what stands beside it."""
        workload = measured or self.workload
        return {"workload": workload.name, **workload.identity(), "ladder": list(self.experiment.ladder),
                "data": "random" if workload.data == "random" else Path(workload.data).name,
                "use_reentrant": False}

    def save(self, kind: str, record: TopRecord) -> dict[str, Any]:
        """Write the record once and return it as a plain dict, with where it lies and how it got there."""
        path = self.file(kind)
        outcome = write_once(path, record)
        return {**record.model_dump(mode="json", exclude={"content_sha256"}),
                "record_path": self.results.relative(path), "record_state": outcome}


def open_session(label: str, *, preset: str | None = None, workload: str | Path | None = None, device: str = "auto",
                 results_dir: str | Path | None = None, progress: bool = True, say: Callable[[str], None] = print,
                 allow_placeholder: bool = False, **flags: Any) -> Session:
    """Resolve a stage's arguments, in the command line's words with underscores.

    The preset defaults to `tiny` on a CPU and `pressure` on a GPU.

    Raises:
        LabelError, InputError, UnknownNameError, DeviceError: with every problem of its kind.
    """
    label = check_label(label, allow_placeholder)
    resolved = resolve_device(device)
    experiment = load_experiment(preset, workload, default_preset="pressure" if resolved == "cuda" else "tiny", **flags)
    return Session(label, experiment, resolved, ResultsFolder(results_dir), progress, say)


def require_same_identity(what: str, ours: dict[str, Any], theirs: dict[str, Any], next_step: str,
                          only_recorded: bool = False) -> None:
    """Refuse two identities that differ, with every differing key and both values.

    A record without `amp_dtype` and `mode` is an fp32 record; with `only_recorded`, other keys that
    the record lacks are not compared.
    """
    fp32 = {"amp_dtype": None, "mode": None}
    keys = [key for key in ours if not only_recorded or key in theirs or key in fp32]
    differences = {key: (ours[key], theirs.get(key)) for key in keys if ours[key] != theirs.get(key)}
    if differences:
        raise IdentityMismatchError(what, differences, next_step)
