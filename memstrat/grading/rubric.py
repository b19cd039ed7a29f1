"""How many points an exercise is worth, and the seeds of its cases. A small TOML file of the instructor."""

from __future__ import annotations

import secrets
import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from memstrat.checks import EXERCISES
from memstrat.errors import InputError
from memstrat.workload import Frozen, build, short_hash


class Rubric(Frozen):
    """Points and seeds of one release of the exercises.

    Hidden cases come from the public generators under `hidden_secret`. Whoever knows the secret can
    make them; without one (empty) everybody can, and the report says so.
    """

    title: str = "memstrat exercises"
    release: str = "r1"  # seeds the random cases; stated in every report
    hidden_secret: str = ""
    random_cases: int = Field(default=24, ge=0, le=500)
    hidden_cases: int = Field(default=24, ge=0, le=500)
    earns_from: float = Field(default=0.5, ge=0, lt=1)  # share of right cases below which nothing is earned
    records_points: float = Field(default=0.0, ge=0)  # for records handed in that hold in every number
    points: dict[str, float] = {}

    @field_validator("points")
    @classmethod
    def _check_points(cls, points: dict[str, float]) -> dict[str, float]:
        unknown = [name for name in points if name not in EXERCISES]
        if unknown or any(value < 0 for value in points.values()):
            raise ValueError(f"must give points >= 0 to exercises among {', '.join(EXERCISES)}")
        return {name: points.get(name, spec.points) for name, spec in EXERCISES.items()}

    def points_of(self, grade_id: str) -> float:
        return self.points.get(grade_id, EXERCISES[grade_id].points)

    def earned(self, grade_id: str, num_right: int, num_cases: int) -> float:
        """Points for so many right cases; partial credit begins above `earns_from`."""
        share = num_right / num_cases if num_cases else 0.0
        credit = max(0.0, (share - self.earns_from) / (1 - self.earns_from))
        return round(self.points_of(grade_id) * credit, 2)

    def public(self) -> dict[str, Any]:
        """What a report may say: everything but the secret."""
        content = self.model_dump(exclude={"hidden_secret"})
        return {**content, "hidden_secret_given": bool(self.hidden_secret), "rubric_id": short_hash(self.model_dump())}


def read_rubric(path: Path | None) -> Rubric:
    """The rubric of a file, or the default one. Raises `InputError` with every problem."""
    if path is None:
        return Rubric()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"rubric: must be a TOML file, got {path.name} ({error}). "
                         "Make one with memstrat rubric FILE.") from None
    return build(Rubric, tables, "rubric")


def write_rubric(path: Path, title: str = "memstrat exercises", release: str = "r1") -> Path:
    """A rubric with today's points and a fresh secret. Raises `InputError` if the file exists."""
    if path.exists():
        raise InputError(f"rubric: must be a new file, got {path.name}, which exists. Choose another name.")
    lines = [f'title = "{title}"', f'release = "{release}"  # seeds the random cases; every report states it',
             f'hidden_secret = "{secrets.token_hex(16)}"  # keep this file from learners', "random_cases = 24",
             "hidden_cases = 24", "earns_from = 0.5  # partial credit begins above this share of right cases",
             "records_points = 0  # for g0, g1 and decision records that hold in every number", "",
             "[points]", *(f"{name} = {spec.points}" for name, spec in EXERCISES.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
