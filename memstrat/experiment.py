"""An experiment: a workload with its length ladder and budget, from a preset, a file or flags.

Presets are TOML files in `presets/`, read by the function that reads a user's `--workload FILE`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from memstrat.errors import InputError, UnknownNameError
from memstrat.workload import Frozen, Workload, build, short_hash

PRESETS_DIR = Path(__file__).parent / "presets"


class Budget(Frozen):
    """What the decision holds candidates against. MB in a key means MiB."""

    memory_cap_mb: float = Field(gt=0)
    min_samples_per_s: float = Field(default=0.0, ge=0)
    min_memory_saving_mb: float = Field(default=512.0, ge=0)
    min_throughput_ratio: float = Field(default=0.70, gt=0, le=1)


class Experiment(Frozen):
    """A workload with its length ladder and budget: what a preset holds."""

    workload: Workload
    budget: Budget | None  # None: a model of the user's own, and no cap given yet
    ladder: tuple[int, ...]
    max_val_loss: float | None = Field(default=None, gt=0)
    about: str = ""  # one line for people: why these numbers
    reference_label: str | None = None  # label of the committed record that `prepare` shows a newcomer

    @model_validator(mode="after")
    def _check_ladder(self) -> Experiment:
        steps = (self.workload.seq_len, *self.ladder)
        if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
            raise ValueError(f"must be strictly increasing and above the base length {steps[0]}, "
                             f"got {list(self.ladder)}")
        return self

    def require_budget(self) -> Budget:
        """The budget, or the refusal that asks for one."""
        if self.budget is None:
            raise InputError("memory_cap_mb: must be given for a model of your own, got nothing. "
                             "Add --memory-cap-mb with the MiB you can spend (and the floors you need).")
        return self.budget


def preset_names() -> tuple[str, ...]:
    """Names of the bundled presets, sorted."""
    return tuple(sorted(path.stem for path in PRESETS_DIR.glob("*.toml")))


def load_experiment(preset: str | None = None, workload_file: str | Path | None = None, *,
                    default_preset: str = "tiny", **overrides: Any) -> Experiment:
    """A preset or a user's file, with every given override (those that are None count as not given).

    A changed base length without a ladder scales the ladder with it. A model of the user's own
    without preset, file or cap leaves the budget open: its numbers belong to another model. On
    every device, its folder's weights are used where it holds some, and random ones where not.

    Args:
        preset: name of a bundled preset; `default_preset` if neither is given.
        workload_file: TOML or JSON in the form of the presets.
        overrides: flat, named as the command line's flags with underscores.

    Raises:
        UnknownNameError: no such preset.
        InputError: the file or an override breaks a rule; every problem is listed.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    if preset is not None and workload_file is not None:
        raise InputError("preset: must not be given together with a workload file, got both. Keep one of them.")
    name = default_preset if preset is None else preset
    path = PRESETS_DIR / f"{name}.toml" if workload_file is None else Path(workload_file)
    if workload_file is None and name not in preset_names():
        raise UnknownNameError(f"preset: must be one of {', '.join(preset_names())}, got {name!r}. "
                               "Choose one, or give --workload FILE.")
    tables = _read_tables(path)
    own_model = "model" in given and preset is None and workload_file is None
    if own_model:
        tables["budget"] = {}
        tables["workload"]["name"] = "custom"
        tables.pop("reference_label", None)
        tables["workload"]["weights"] = _weights_of(Path(str(given["model"])), tables["workload"].get("weights"))
    problems = _apply_overrides(tables, given)
    budget = tables.get("budget") or None
    if budget is not None and "memory_cap_mb" not in budget:
        budget = None
    parts: dict[str, Any] = {}
    for key, model, values in (("workload", Workload, tables["workload"]), ("budget", Budget, budget)):
        try:
            parts[key] = build(model, values, key) if values is not None else None
        except InputError as error:
            problems += error.problems
    rest = {key: tables[key] for key in ("about", "max_val_loss", "reference_label") if key in tables}
    # A workload or budget that was refused leaves a stand-in, so that the ladder's problems are told too.
    seq_len = tables["workload"].get("seq_len")
    stand_in = Workload.model_construct(seq_len=seq_len if isinstance(seq_len, int) else 0)
    try:
        experiment = build(Experiment, {"workload": stand_in, "budget": None, **parts,
                                        "ladder": tables.get("ladder", ()), **rest}, "ladder")
    except InputError as error:
        problems += error.problems
    if problems:
        raise InputError(problems)
    return experiment


WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", re.ASCII)
_OPTIMIZERS = {"adamw": "AdamW", "sgd": "SGD"}
_TO_WORKLOAD = ("weights", "data", "dtype_mode", "micro_batch", "seq_len", "loss_head", "attention",
                "warmup", "iters", "repeats", "seed", "strategies", "model_source")
_TO_BUDGET = tuple(Budget.model_fields)


def _apply_overrides(tables: dict[str, Any], given: dict[str, Any]) -> list[str]:
    """Put flat overrides where the nested tables hold them; the problems of those that have no place."""
    problems: list[str] = []
    workload, base = tables["workload"], tables["workload"].get("seq_len")
    for key in _TO_WORKLOAD:
        if key in given:
            workload[key] = given.pop(key)
    for key in _TO_BUDGET:
        if key in given:
            tables.setdefault("budget", {})[key] = given.pop(key)
    optimizer = dict(workload.get("optimizer", {}))
    if "optimizer" in given:
        name = str(given.pop("optimizer"))
        if _OPTIMIZERS.get(name.lower(), name) != optimizer.get("name", "AdamW"):
            optimizer.pop("lr", None) # the learning rate belongs to the optimizer it was chosen for
        optimizer["name"] = _OPTIMIZERS.get(name.lower(), name)
    for key in ("lr", "foreach", "fused"):
        if key in given:
            optimizer[key] = given.pop(key)
    if optimizer.get("name") == "SGD":
        optimizer.setdefault("lr", 1e-4)
        optimizer.setdefault("momentum", 0.0)
    workload["optimizer"] = optimizer
    if "model" in given:
        try:
            workload.update(resolve_model(str(given.pop("model"))))
        except InputError as error:
            problems += error.problems
    if "ladder" in given:
        try:
            tables["ladder"] = parse_ints(given.pop("ladder"))
        except InputError as error:
            problems += error.problems
            tables["ladder"] = ()
    else:
        tables["ladder"] = _scale_ladder(tables.get("ladder", ()), base, workload.get("seq_len"))
    if "max_val_loss" in given:
        tables["max_val_loss"] = given.pop("max_val_loss")
    return problems + [f"{key}: must be a known setting, got {value!r}. See memstrat g0 --help."
                       for key, value in given.items()]


def _scale_ladder(ladder: Any, base: Any, seq_len: Any) -> Any:
    """The ladder in proportion to a changed base length; as it is where one of them is no length at all."""
    if not isinstance(ladder, (list, tuple)) or not all(isinstance(value, int) for value in (base, seq_len, *ladder)):
        return ladder
    if base == seq_len or base < 1:
        return ladder
    scaled = (round(Fraction(length * seq_len, base)) for length in ladder)
    return list(dict.fromkeys(length for length in scaled if length > seq_len))


def _weights_of(path: Path, otherwise: Any) -> Any:
    """`pretrained` for a local folder that holds weights, `random` for one without; else as the preset says."""
    if not path.exists():
        return otherwise
    folder = path if path.is_dir() else path.parent
    return "pretrained" if any(next(folder.glob(pattern), None) for pattern in WEIGHT_FILES) else "random"


def resolve_model(model: str) -> dict[str, Any]:
    """`model_id` and `model_path` for a hub id, a local folder or a config.json.

    A local model's id carries a short hash of its config and the sizes of its files, so that two
    folders of one name are two workloads and no machine path enters a record.
    """
    path = Path(model)
    config = path / "config.json" if path.is_dir() else path
    if not path.exists():
        if not _HUB_ID.fullmatch(model):
            raise InputError(f"model: must be a folder, a config.json or a Hub id (owner/name), got {model!r}, and "
                             "nothing lies there. Correct the path, or save the model there with save_pretrained.")
        return {"model_id": model, "model_path": None}
    if not config.is_file():
        raise InputError(f"model: must be a folder with a config.json, got {model!r} without one. "
                         "Point --model at the folder that save_pretrained wrote.")
    facts: list[Any] = [hashlib.sha256(config.read_bytes()).hexdigest()]
    if path.is_dir():
        facts += [[file.name, file.stat().st_size] for file in sorted(path.glob("*.safetensors"))]
    name = path.resolve().name if path.is_dir() else path.resolve().parent.name
    return {"model_id": f"local/{name}@{short_hash(facts)[:12]}", "model_path": str(path)}


def parse_ints(text: str | Iterable[int], field: str = "ladder") -> Any:
    """`1024,1280` as [1024, 1280]; a list of numbers as it is, for its own rules to judge.

    Raises:
        InputError: a part of the text is no whole number, or has more than 9 digits.
    """
    if not isinstance(text, str):
        return text
    parts = [part.strip() for part in text.strip().removesuffix(",").split(",")]
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise InputError(f"{field}: must be whole numbers separated by commas, got {_shorten(text)!r}. "
                         "Write it as 1024,1280,1536.")
    return [int(part) for part in parts]


def _shorten(text: str, length: int = 80) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _read_tables(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        tables = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except FileNotFoundError:
        raise InputError(f"workload: must be a file, got {str(path)!r}, which is not there. Check the path.") from None
    except OSError as error:
        raise InputError(f"workload: must be a file that can be read, got {str(path)!r}: {error.strerror}. "
                         "Check the path.") from None
    except (ValueError, RecursionError) as error:  # a wrong encoding is a ValueError, too
        raise InputError(f"workload: must be TOML or JSON, got {path.name} with: {error}. Correct that line.") from None
    if not isinstance(tables, dict):
        raise InputError(f"workload: must be a table of tables in {path.name}, got {_shorten(repr(tables))}. "
                         "Copy a file from memstrat/presets and change it.")
    known = {"about", "workload", "budget", "ladder", "max_val_loss", "reference_label"}
    problems = [f"{key}: must be one of {', '.join(sorted(known))} in {path.name}, got an unknown key. Remove it."
                for key in tables if key not in known]
    workload = tables.get("workload")
    inside = workload if isinstance(workload, dict) else {}
    for key, table in (("workload", workload), ("budget", tables.get("budget", {})),
                       ("workload.optimizer", inside.get("optimizer", {}))):
        if not isinstance(table, dict):
            problems.append(f"{key}: must be a table in {path.name}, got {_shorten(repr(table))}. "
                            "Copy a file from memstrat/presets and change it.")
    if "data_sha256" in inside:  # a hash that somebody writes down proves nothing
        problems.append(f"workload.data_sha256: must be left out of {path.name}, got {inside['data_sha256']!r}. "
                        "Remove it: the text itself is hashed.")
    if problems:
        raise InputError(problems)
    inside.setdefault("name", path.stem)
    return tables
