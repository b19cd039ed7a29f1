"""Where an answer first differs from the expected one.

Floats agree within 1e-9 relative, whole numbers exactly; an int and a float of one value agree, a bool and a number do
not. Additional keys are no difference, except in a row that must hold nothing but a name and a
status: a failed run with figures beside it would read as a gain.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

BARE_STATUSES = ("oom", "failed", "invalid")


class Difference(NamedTuple):
    """The first place where two answers part."""

    path: tuple[str | int, ...]
    kind: str  # missing, extra, type, length, value
    expected: Any
    got: Any

    @property
    def place(self) -> str:
        """`comparisons[0].memory_saving_mb`; empty where the whole answer is meant."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def first_difference(expected: Any, got: Any, path: tuple[str | int, ...] = ()) -> Difference | None:
    """The first difference in the order of the expected answer, or None if there is none."""
    if isinstance(expected, dict):
        if not isinstance(got, dict):
            return Difference(path, "type", expected, got)
        for key, value in expected.items():
            if key not in got:
                return Difference((*path, key), "missing", value, None)
            found = first_difference(value, got[key], (*path, key))
            if found:
                return found
        if set(expected) == {"name", "status"} and expected["status"] in BARE_STATUSES:
            for key in got:
                if key not in expected and got[key] is not None:
                    return Difference((*path, key), "extra", None, got[key])
        return None
    if isinstance(expected, list):
        if not isinstance(got, list):
            return Difference(path, "type", expected, got)
        for index, (ours, theirs) in enumerate(zip(expected, got, strict=False)):
            found = first_difference(ours, theirs, (*path, index))
            if found:
                return found
        return None if len(expected) == len(got) else Difference(path, "length", expected, got)
    return None if _scalars_agree(expected, got, path) else Difference(path, "value", expected, got)


def _scalars_agree(expected: Any, got: Any, path: tuple[str | int, ...]) -> bool:
    if expected is None and path[:1] == ("baseline",) and isinstance(got, float):
        return not math.isfinite(got)  # an exact copy of the input's NaN is as good a copy
    if isinstance(expected, bool) or isinstance(got, bool) or expected is None or isinstance(expected, str):
        return type(expected) is type(got) and expected == got
    if not isinstance(got, (int, float)):
        return False
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    try:
        return math.isclose(expected, got, rel_tol=1e-9, abs_tol=1e-9)
    except OverflowError:
        return False
