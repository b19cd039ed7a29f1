"""A function's answer as plain JSON values, whatever odd objects it is made of.

Needs the standard library only and copies the builtins it uses, because it also runs beside a
learner's code, which may have replaced them. Nothing here calls a method that the answer's own
class defines: an object that claims to equal everything arrives as an object, and equals nothing.
"""

from __future__ import annotations

from builtins import bool, dict, float, int, isinstance, len, list, str, tuple, type  # noqa: UP029
from typing import Any

MAX_DEPTH = 16
MAX_ITEMS = 50_000
OBJECT_KEY = "__object__"  # {"__object__": "set"} stands for what JSON has no word for


def to_plain(value: Any) -> Any:
    """Dicts, lists, strings, numbers, bools and None; an `__object__` marker for anything else.

    Tuples become lists and NumPy's numbers plain ones. Answers deeper than 16 or larger than
    50,000 items (16 characters count as one) are cut off by a marker.
    """
    budget = [MAX_ITEMS]

    def convert(item: Any, depth: int) -> Any:
        budget[0] -= 1
        kind = type(item)
        if budget[0] < 0 or depth > MAX_DEPTH:
            return {OBJECT_KEY: "too large"}
        if item is None or item is True or item is False:
            return item
        if isinstance(item, str):
            text = str.__str__(item)
            budget[0] -= len(text) // 16
            return text if budget[0] >= 0 else {OBJECT_KEY: "too large"}
        if isinstance(item, int):
            return int.__int__(item)
        if isinstance(item, float):
            return float.__float__(item)
        if isinstance(item, dict):
            return {_name_of_key(key): convert(content, depth + 1) for key, content in dict.items(item)}
        if isinstance(item, (list, tuple)):
            base = list if isinstance(item, list) else tuple
            return [convert(content, depth + 1) for content in base.__iter__(item)]
        if kind.__module__ == "numpy" and "item" in dir_of(kind):
            return convert(item.tolist(), depth + 1)
        return {OBJECT_KEY: kind.__name__[:80]}

    return convert(value, 0)


def dir_of(kind: type) -> set[str]:
    """Names that a type or one of its bases defines, without asking the object itself."""
    return {name for base in kind.__mro__ for name in base.__dict__}


def _name_of_key(key: Any) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    kind = type(key)
    return f"<{kind.__name__[:40]} {int.__int__(key)}>" if isinstance(key, int) else f"<{kind.__name__[:40]}>"


def same(left: Any, right: Any) -> bool:
    """True if two plain values are identical in type and value (NaN equals NaN): tells a changed input."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all_same([(left[key], right[key]) for key in left])
    if isinstance(left, list):
        return len(left) == len(right) and all_same([(left[i], right[i]) for i in range(len(left))])
    return bool(left == right) or (left != left and right != right)


def all_same(pairs: list[tuple[Any, Any]]) -> bool:
    for left, right in pairs:
        if not same(left, right):
            return False
    return True
