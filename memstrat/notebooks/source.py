"""A notebook source taken apart into cells, and put together as one edition.

The source is jupytext's py:percent. Beyond that:

* every cell has an `id`; the two languages of one passage are two markdown cells of one `id` with
  `lang="en"` and `lang="zh"`; code is written once.
* in code, a line of one language ends in `# [en]` or `# [zh]`; a line of a comment or docstring
  begins with `[en]` or `[zh]`. `{contract}` in an exercise is the docstring of its stub.
* `only="solution"` or `only="learner"` keeps a cell to those editions.
* `kind="first"` is filled with `first_cell.py`. `kind="exercise"` and `kind="check"` are nbgrader's
  solution and test cells (the exercise's id is its `grade_id`); `points` belongs to the check.
* what stands between `### BEGIN SOLUTION` and `### END SOLUTION` becomes the stub's refusal in a
  learner edition.
* `compare=true` has nbval compare the stored text output of a solution edition.

Does not cover execution and files (see `build`).
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from memstrat.checks.registry import exercise
from memstrat.errors import InputError

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
COMPARE_TAG = "nbval-check-output"
_ID = re.compile(r"[a-z][a-z0-9_]{0,63}")
_LEADING = re.compile(r"^(\s*(?:# )?)\[(en|zh)\] ?(.*)$")
_TRAILING = re.compile(r"\s+# \[(en|zh)\]$")
_YOUR_CODE = {"en": "# Your code here.", "zh": "# 在这里写你的代码。"}


@dataclass(frozen=True)
class SourceCell:
    """One cell of the source. `line` is where it begins, for messages."""

    id: str
    cell_type: str
    text: str
    language: Language | None = None
    only: str | None = None
    kind: str | None = None
    points: float = 0
    compare: bool = False
    line: int = 0


@dataclass(frozen=True)
class Source:
    """A whole notebook in both languages."""

    name: str
    cells: tuple[SourceCell, ...] = field(default=())

    @property
    def exercises(self) -> tuple[str, ...]:
        """Grade ids in order."""
        return tuple(cell.id for cell in self.cells if cell.kind == "exercise")


@dataclass(frozen=True)
class Edition:
    """Which of the four notebooks to make, and the address to stamp into it."""

    language: Language
    is_solution: bool
    repository: str
    ref: str

    def path(self, name: str) -> Path:
        """Where this edition of a notebook lies, relative to `notebooks/`."""
        folder = Path() if self.language == "en" else Path(self.language)
        return (folder / "solutions" if self.is_solution else folder) / f"{name}.ipynb"


def read_source(path: Path) -> Source:
    """The cells of a source file.

    Raises:
        InputError: a cell without a proper id, an id used twice, a passage in one language only, an
            exercise without its check. Every problem is listed.
    """
    import jupytext  # only the builder needs it

    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = tuple(_source_cell(cell) for cell in notebook.cells)
    problems = [f"{path.name}: {problem}" for problem in _problems(cells)]
    if problems:
        raise InputError(problems)
    return Source(path.stem, cells)


def _source_cell(cell: Any) -> SourceCell:
    meta = cell.metadata
    return SourceCell(id=str(meta.get("id", "")), cell_type=cell.cell_type, text=cell.source, language=meta.get("lang"),
                      only=meta.get("only"), kind=meta.get("kind"), points=float(meta.get("points", 0)),
                      compare=bool(meta.get("compare", False)))


def _problems(cells: tuple[SourceCell, ...]) -> list[str]:
    problems = [f"cell id must be lower case letters, digits and '_', got {cell.id!r} for {cell.text[:40]!r}. Name it."
                for cell in cells if not _ID.fullmatch(cell.id)]
    for language in LANGUAGES:
        ids = [cell.id for cell in cells if cell.language in (None, language)]
        problems += [f"cell id must be unique, got {cell_id!r} twice in {language}. Rename one."
                     for cell_id in sorted({item for item in ids if ids.count(item) > 1})]
    prose = {language: [cell.id for cell in cells if cell.language == language] for language in LANGUAGES}
    if prose["en"] != prose["zh"]:
        odd = sorted(set(prose["en"]) ^ set(prose["zh"])) or ["their order"]
        problems.append(f"prose must stand in both languages side by side, got a difference in {', '.join(odd)}. "
                        "Write the missing one.")
    problems += [f"markdown must have lang en or zh, got {cell.id!r} without. Add it."
                 for cell in cells if cell.cell_type == "markdown" and cell.language is None]
    checked = {cell.id for cell in cells if cell.kind == "check"}
    problems += [f"exercise must have a check cell test_{cell.id}, got none. Add it."
                 for cell in cells if cell.kind == "exercise" and f"test_{cell.id}" not in checked]
    return problems


def assemble(source: Source, edition: Edition, stamp: dict[str, str]) -> Any:
    """One edition as a notebook without outputs.

    Args:
        source: the notebook in both languages.
        edition: which one to make.
        stamp: `first_cell`: the text of the first code cell; `badges`: markdown put below the title.
    """
    from nbformat import v4

    notebook = v4.new_notebook(metadata={
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"}})
    wanted = "solution" if edition.is_solution else "learner"
    for cell in source.cells:
        if cell.language in (None, edition.language) and cell.only in (None, wanted):
            text = _text_of(cell, edition, stamp)
            make = v4.new_markdown_cell if cell.cell_type == "markdown" else v4.new_code_cell
            notebook.cells.append(make(text, id=cell.id, metadata=_metadata(cell, edition)))
    return notebook


def _text_of(cell: SourceCell, edition: Edition, stamp: dict[str, str]) -> str:
    if cell.kind == "first":
        return stamp["first_cell"]
    text = cell.text
    if cell.cell_type == "markdown":
        return text.replace("{badges}", stamp["badges"])
    text = one_language(text, edition.language)
    if cell.kind == "exercise":
        text = text.replace("{contract}", contract_of(cell.id))
    return text if edition.is_solution else without_solution(text, cell.id, edition.language)


def one_language(code: str, language: Language) -> str:
    """The code with the lines of one language, their marks removed."""
    lines = []
    for line in code.split("\n"):
        leading, trailing = _LEADING.match(line), _TRAILING.search(line)
        if leading:
            line = (leading[1] + leading[3]).rstrip()
        elif trailing:
            line = line[:trailing.start()]
        mark = leading[2] if leading else trailing[1] if trailing else language
        if mark == language:
            lines.append(line)
    return "\n".join(lines)


def contract_of(grade_id: str) -> str:
    """The docstring of an exercise's stub, indented to stand in a function."""
    lines = inspect.cleandoc(exercise(grade_id).stub().__doc__ or "").split("\n")
    return "\n    ".join(lines).replace("    \n", "\n")


def without_solution(code: str, grade_id: str, language: Language) -> str:
    """The code as the learner gets it: each solution replaced by a refusal that names the exercise."""
    lines: list[str] = []
    is_inside = False
    for line in code.split("\n"):
        indent = line[:len(line) - len(line.lstrip())]
        if line.strip() == BEGIN:
            is_inside = True
            lines.append(indent + _YOUR_CODE[language])
            lines.append(f'{indent}raise NotImplementedError("{grade_id}")')
        elif line.strip() == END:
            is_inside = False
        elif not is_inside:
            lines.append(line)
    if is_inside:
        raise InputError(f"{grade_id}: must close {BEGIN} with {END}, got none. Add it.")
    return "\n".join(lines)


def _metadata(cell: SourceCell, edition: Edition) -> dict[str, Any]:
    if cell.kind == "first":  # long, and not what a notebook is about: folded in JupyterLab and Colab
        return {"cellView": "form", "jupyter": {"source_hidden": True}}
    if cell.kind in ("exercise", "check"):
        return {"nbgrader": _nbgrader(cell)}
    return {"tags": [COMPARE_TAG]} if cell.compare and edition.is_solution else {}


def _nbgrader(cell: SourceCell) -> dict[str, Any]:
    """Metadata of nbgrader's schema 3; nbgrader adds its checksum when it releases the notebook."""
    is_check = cell.kind == "check"
    meta: dict[str, Any] = {"schema_version": 3, "grade": is_check, "solution": not is_check, "locked": is_check,
                            "task": False, "grade_id": cell.id}
    if is_check:
        meta |= {"points": cell.points, "cell_type": "code"}
    return meta

