"""The learner's exercise cells in the released notebook, and nothing else of what they handed in.

Cells are recognised by `grade_id`, then by cell id, then by the function they define. Helpers in
other cells than the exercises' are not taken: the released notebook says so.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import threading
from pathlib import Path
from typing import Any, NamedTuple

from memstrat.checks import EXERCISES, ExerciseSpec
from memstrat.errors import InputError
from memstrat.grading.submissions import Cell

MAX_CELL_CHARS = 200_000  # longer ones are not parsed in the grader's own process
_PARSING = threading.Lock()
_CELL_MAGIC = re.compile(r"^%%(time|timeit|capture|prun)\b[^\n]*\n")
_LINE_MAGIC = re.compile(r"^(\s*)([%!?][^\n]*|[^\n#'\"=]+\?{1,2}\s*)$", re.MULTILINE)


class Release(NamedTuple):
    """A released notebook: its content and the exercises in it."""

    name: str
    content: dict[str, Any]
    stubs: dict[str, str]  # grade_id: source of the untouched cell
    prelude: str  # imports of its other cells

    @property
    def specs(self) -> list[ExerciseSpec]:
        return [EXERCISES[grade_id] for grade_id in self.stubs]


class Picked(NamedTuple):
    """The cell taken for one exercise, and what was odd about finding it."""

    source: str
    notes: list[str]


def read_release(path: Path) -> Release:
    """A learner edition with nbgrader metadata. Raises `InputError` if it holds no exercise."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = content["cells"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"release: must be a notebook of format 4, got {path.name} ({error}). "
                         "Build it with make notebooks.") from None
    stubs, imports = {}, []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        grading = cell["metadata"].get("nbgrader", {})
        if grading.get("solution") and grading.get("grade_id") in EXERCISES:
            stubs[grading["grade_id"]] = source_of(cell)
        elif not grading.get("grade"):
            imports += import_lines(source_of(cell))
    if not stubs:
        raise InputError(f"release: must hold an exercise ({', '.join(EXERCISES)}), got {path.name} without one. "
                         "Give the learner edition of a notebook with exercises.")
    guarded = "\n".join(f"try:\n    {line}\nexcept Exception:\n    pass" for line in dict.fromkeys(imports))
    return Release(path.stem, content, stubs, guarded)


def source_of(cell: dict[str, Any]) -> str:
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def import_lines(source: str) -> list[str]:
    """Top-level imports of a cell, one a line; of this package the package alone."""
    tree = parse(source)
    lines = [ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom)
             and (node.module or "").split(".")[0] not in ("__future__", "memstrat")] if tree else []
    names = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names] if tree else []
    return lines + [ast.unparse(ast.Import([alias])) for alias in names if not alias.name.startswith("memstrat.")]


def parse(source: str) -> ast.Module | None:
    """The cell's syntax tree without IPython's own syntax, or None."""
    if len(source) > MAX_CELL_CHARS:
        return None
    try:
        return _parse(plain_source(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _parse(source: str) -> ast.Module:
    """`ast.parse`, one thread at a time: CPython 3.11 counts the depth of a tree for the whole interpreter."""
    with _PARSING:
        return ast.parse(source)


def plain_source(source: str) -> str:
    """The cell as plain Python: magics and shell lines become `pass`."""
    source = _CELL_MAGIC.sub("", source.lstrip("\n"))
    if len(source) > MAX_CELL_CHARS:
        return source
    try:
        _parse(source)
    except SyntaxError:
        return _LINE_MAGIC.sub(lambda match: f"{match[1]}pass", source)
    except (ValueError, RecursionError, MemoryError):
        pass
    return source


def defined_names(source: str) -> set[str]:
    """Names that a cell defines at its top level."""
    tree = parse(source)
    if tree is None:
        return set(re.findall(r"^(?:async\s+)?(?:def|class)\s+(\w+)", source, re.MULTILINE))
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        else:
            names |= {inner.id for inner in ast.walk(node)
                      if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}
            names |= {alias.asname or alias.name for alias in getattr(node, "names", [])
                      if isinstance(alias, ast.alias)}
    return names


def used_names(source: str) -> set[str]:
    tree = parse(source)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()


def pick_cells(release: Release, cells: list[Cell]) -> dict[str, Picked | None]:
    """For each exercise the learner's cell, or None. Of several that qualify, the last one."""
    return {spec.grade_id: _pick(spec, release.stubs[spec.grade_id], cells) for spec in release.specs}


def _pick(spec: ExerciseSpec, stub: str, cells: list[Cell]) -> Picked | None:
    named = [cell for cell in cells if cell.grade_id == spec.grade_id]
    by_id = [cell for cell in cells if spec.grade_id in cell.ids]
    defining = [cell for cell in cells if spec.function_name in defined_names(cell.source)]
    untouched = stub.strip()
    for group in (named, by_id, defining):
        worked = [cell for cell in group if cell.source.strip() != untouched
                  and spec.function_name in defined_names(cell.source)]
        if worked:
            notes = [f"{len(worked)} cells for {spec.grade_id}; the last one is graded"] if len(worked) > 1 else []
            return Picked(worked[-1].source, notes)
    for group in (named, by_id, defining):
        if group:
            return Picked(group[-1].source, [])
    return None


def sources_for(release: Release, picked: dict[str, Picked | None], grade_id: str) -> list[tuple[str, str]]:
    """What runs before an exercise's functions are called: imports, other exercises it uses, its own cell."""
    own = picked[grade_id]
    assert own is not None
    others: list[str] = []
    waiting = used_names(own.source) - defined_names(own.source)
    for name, other in picked.items():
        if name != grade_id and other is not None and waiting & defined_names(other.source):
            others.append(name)
    sources = [("imports", release.prelude)]
    sources += [(name, plain_source(picked[name].source)) for name in others]  # type: ignore[union-attr]
    return [*sources, (grade_id, plain_source(own.source))]


def rebuild(release: Release, picked: dict[str, Picked | None]) -> dict[str, Any]:
    """The released notebook with the learner's cells in it."""
    content = copy.deepcopy(release.content)
    for cell in content["cells"]:
        grading = cell["metadata"].get("nbgrader", {})
        found = picked.get(grading.get("grade_id")) if grading.get("solution") else None
        if found is not None:
            cell["source"] = found.source
        if cell["cell_type"] == "code" and grading:
            cell["outputs"], cell["execution_count"] = [], None
    return content
