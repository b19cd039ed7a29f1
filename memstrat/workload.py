"""The controlled variables of one training task, as a frozen model.

A `Workload` is everything two runs must share before they may be compared; its identity is the
subset the contract names, and `workload_id` its hash.

Not covered: ladder, budget and presets (see `experiment`), hardware (see `environment`), and
where weights lie (see `models`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memstrat.errors import InputError, LabelError, UnknownNameError

PLACEHOLDER_LABEL = "replace_with_unique_label"
RUN_STAGES = ("prepare", "g0", "g1", "close")
G1_LR, G1_WARMUP, G1_ITERS, G1_REPEATS = 1e-4, 1, 3, 3
CORE_STRATEGIES = ("baseline", "checkpoint", "offload", "hybrid")

_strategy_names: dict[str, None] = dict.fromkeys(CORE_STRATEGIES)


def known_strategies() -> tuple[str, ...]:
    """Names a workload may list: the bundled ones, then those registered since."""
    return tuple(_strategy_names)


def declare_strategy(name: str) -> None:
    """Let workloads name a strategy. `memstrat.strategies.register` calls this."""
    _strategy_names[name] = None


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN. Equal texts mean equal content."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def short_hash(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of the value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def check_label(label: Any, allow_placeholder: bool = False) -> str:
    """The label itself, if it is safe as part of a file name and chosen by the user.

    Raises:
        LabelError: for the placeholder, an empty, overlong (over 64 characters) or unsafe label.
    """
    if label == PLACEHOLDER_LABEL:
        if allow_placeholder:
            return label
        raise LabelError(f"label: must be a name of your own, got the placeholder {label!r}. "
                         "Set RUN_LABEL (or --label) to something unique, such as qwen_a10_v1.")
    if not isinstance(label, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", label):
        raise LabelError(f"label: must be 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter "
                         f"or digit, got {label!r}. Choose another label, such as qwen_a10_v1.")
    return label


def check_stage(stage: str) -> str:
    """The stage itself, if a notebook may run it. Raises `UnknownNameError` otherwise."""
    if stage not in RUN_STAGES:
        raise UnknownNameError(f"RUN_STAGE: must be one of {', '.join(RUN_STAGES)}, got {stage!r}. Set one of these.")
    return stage


class Frozen(BaseModel):
    """Unchangeable, with no unknown keys and no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class OptimizerSpec(Frozen):
    """An optimizer with every flag that changes its memory. `None` leaves a flag to torch."""

    name: Literal["AdamW", "SGD"] = "AdamW"
    lr: float = Field(default=1e-5, gt=0)
    momentum: float | None = Field(default=None, ge=0, lt=1)  # SGD only; AdamW keeps torch's betas
    foreach: bool | None = None
    fused: bool | None = None

    @model_validator(mode="after")
    def _check_flags(self) -> OptimizerSpec:
        if self.foreach and self.fused:
            raise ValueError("must not be both foreach and fused; drop one of the two flags")
        if self.name == "AdamW" and self.momentum is not None:
            raise ValueError("must have no momentum with AdamW; leave it out")
        return self


class Workload(Frozen):
    """One training task. Nothing in it may differ between the candidates of an experiment."""

    name: str = "custom"  # the preset or file it came from; no part of the identity
    model_id: str = Field(min_length=1)
    model_path: str | None = None  # folder or config.json of the user; no part of the identity
    model_source: Literal["auto", "local", "huggingface", "modelscope"] = "auto"
    weights: Literal["pretrained", "random"] = "random"
    data: str = "random"  # "random", or the path of a text
    data_sha256: str = ""  # filled in: of the text's bytes, or of the recipe of the random ids
    dtype_mode: Literal["fp32", "bf16"] = "fp32"
    micro_batch: int = Field(default=1, ge=1, lt=2**31)
    seq_len: int = Field(ge=2, lt=2**31)
    optimizer: OptimizerSpec = OptimizerSpec()
    loss_head: Literal["hf", "chunked"] = "hf"
    attention: Literal["auto", "math", "efficient", "flash"] = "auto"
    warmup: int = Field(default=2, ge=1)  # the optimizer's state appears in the first step
    iters: int = Field(default=5, ge=1)
    repeats: int = Field(default=3, ge=1)
    seed: int = Field(default=42, ge=0, lt=2**63)
    strategies: tuple[str, ...] = CORE_STRATEGIES

    @field_validator("strategies")
    @classmethod
    def _check_strategies(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [name for name in names if name not in _strategy_names]
        if unknown:
            raise ValueError(f"must be among {', '.join(_strategy_names)}; unknown: {', '.join(unknown)}")
        if "baseline" not in names or len(set(names)) != len(names):
            raise ValueError("must name baseline and no strategy twice")
        return names

    @model_validator(mode="after")
    def _fill_data_hash(self) -> Workload:
        object.__setattr__(self, "data_sha256", self.data_sha256 or _data_sha256(self))
        return self

    def identity(self) -> dict[str, Any]:
        """The fields two runs must share, flat, in the record's own keys (contract, section 2)."""
        bf16 = self.dtype_mode == "bf16"
        return {
            "model_id": self.model_id, "weights": self.weights, "data_sha256": self.data_sha256,
            "dtype": "float32", "amp_dtype": "torch.bfloat16" if bf16 else None,
            "mode": "bf16_probe" if bf16 else None,
            "batch_size": self.micro_batch, "seq_len": self.seq_len,
            "optimizer": self.optimizer.name, "optimizer_lr": self.optimizer.lr,
            "optimizer_foreach": self.optimizer.foreach, "optimizer_fused": self.optimizer.fused,
            "loss_head": self.loss_head, "attention": self.attention,
            "warmup": self.warmup, "iters": self.iters, "repeats": self.repeats, "seed": self.seed,
            "strategies": list(self.strategies),
        }

    @property
    def workload_id(self) -> str:
        """16 hex digits; equal for equal identities."""
        return short_hash(self.identity())

    def replace(self, **changes: Any) -> Workload:
        """A checked copy. A change of length or seed renews the recipe hash of random data."""
        values = self.model_dump() | changes
        if self.data == "random" and "data_sha256" not in changes:
            values["data_sha256"] = ""
        return build(Workload, values)


def isolate_activations(workload: Workload, seq_len: int) -> Workload:
    """G1's task at one length: SGD without momentum, so that no optimizer state hides the activations."""
    optimizer = OptimizerSpec(name="SGD", lr=G1_LR, momentum=0.0, foreach=workload.optimizer.foreach,
                              fused=workload.optimizer.fused)
    return workload.replace(seq_len=seq_len, optimizer=optimizer.model_dump(), warmup=G1_WARMUP, iters=G1_ITERS,
                            repeats=G1_REPEATS)


def build(model: type[BaseModel], values: Mapping[str, Any], where: str = "") -> Any:
    """Validate `values` as `model`, reporting every problem in the project's own words.

    Raises:
        InputError: with one line per field that breaks its rule.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        problems = []
        for item in error.errors():
            field = ".".join(str(part) for part in item["loc"]) or where or model.__name__.lower()
            rule = item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
            rule = rule.replace("Field required", "must be given").replace(
                "Extra inputs are not permitted", "must be a known key")
            rule = rule[:1].lower() + rule[1:]
            got = "" if item["type"] == "missing" or not item["loc"] else f", got {item['input']!r}"
            named = not item["loc"] and re.match(r"\w+: ", rule)  # a rule over several fields may name its own
            problems.append(f"{'' if named else f'{field}: '}{rule}{got}. Correct it and run again.")
        raise InputError(problems) from None


def _data_sha256(workload: Workload) -> str:
    if workload.data == "random":
        recipe = f"torch.Generator('cpu') seed={workload.seed + workload.seq_len}: randint train, then eval"
        return hashlib.sha256(recipe.encode()).hexdigest()
    path = find_in_checkout(workload.data)
    if not path.is_file():
        state = "no file" if path.exists() else "not there"
        raise ValueError(f"data: must be 'random' or a text file, got {workload.data!r}, which is {state}")
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ValueError(f"data: must be a readable text file, got {workload.data!r}: {error.strerror}") from None


def find_in_checkout(path: str | Path) -> Path:
    """A relative path as it stands, else below the checkout this package lies in (presets use that)."""
    given = Path(path)
    beside = Path(__file__).parent.parent / given
    return beside if not given.is_absolute() and not given.exists() and beside.exists() else given
