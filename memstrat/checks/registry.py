"""Which exercises there are: where each lives, how it is checked, what it is worth."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from memstrat import exercises, exercises_bytes
from memstrat.errors import UnknownNameError


class ExerciseSpec(NamedTuple):
    """One exercise. `kind` torch: its check needs torch, and judges shapes, counts and hashes."""

    grade_id: str
    function_name: str
    notebook: str
    kind: Literal["plain", "torch"]
    points: int
    stub_address: str
    reference_address: str

    def stub(self) -> Callable[..., Any]:
        return pkgutil.resolve_name(self.stub_address)

    def reference(self) -> Callable[..., Any]:
        return pkgutil.resolve_name(self.reference_address)


_PLACES: dict[str, tuple[str, Literal["plain", "torch"], int]] = {
    "ex_saved_bytes": ("01_what_backward_needs", "torch", 2),
    "ex_pack_unpack": ("01_what_backward_needs", "torch", 2),
    "ex_validate": ("02_fair_pairs", "plain", 4),
    "ex_pairs": ("02_fair_pairs", "plain", 4),
    "ex_handoff": ("02_fair_pairs", "plain", 2),
    "ex_peak_floor": ("03_predict", "plain", 2),
}

EXERCISES: dict[str, ExerciseSpec] = {
    grade_id: ExerciseSpec(grade_id, known.function_name, *_PLACES[grade_id],
                           known.stub_address, known.reference_address)
    for grade_id, known in (exercises_bytes.EXERCISES | exercises.EXERCISES).items()
}


def exercise(grade_id: str) -> ExerciseSpec:
    """The exercise of that id. Raises `UnknownNameError` listing the known ones."""
    if grade_id not in EXERCISES:
        raise UnknownNameError(f"grade_id: must be one of {', '.join(EXERCISES)}, got {grade_id!r}. Use one of these.")
    return EXERCISES[grade_id]
