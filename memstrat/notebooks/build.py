"""Write the editions of the series, run the solution editions, and tell what is out of step.

An executed edition keeps its outputs as long as its code stays as it is; `execute=True` runs it
anyway (after a change of the library, say: nbval then tells that outputs differ). Figures of this
machine's speed stay in outputs that nbval does not compare.

Does not cover what a cell may say (see `source`).
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from memstrat.errors import InputError
from memstrat.notebooks.source import LANGUAGES, Edition, Source, assemble, read_source

FIRST_CELL = Path(__file__).with_name("first_cell.py")
SETTINGS = "series.json"
"""In `notebooks/src`: `repository` (owner/name) and `ref`, the one place that holds the address."""
CELL_TIMEOUT_S = 600
_BAR = re.compile(r"\|.*\| .*(left|/s)")  # a progress bar's text
README_BADGES = ("<!-- badges:begin -->", "<!-- badges:end -->")


def notebooks_dir() -> Path:
    """`notebooks/` of the checkout around the current folder.

    Raises:
        InputError: the current folder lies in no checkout of memstrat.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "notebooks" / "src" / SETTINGS).is_file():
            return folder / "notebooks"
    raise InputError(f"notebooks: must be built in a checkout of memstrat, got {here.name!r}. Change to the checkout.")


def read_address(folder: Path) -> tuple[str, str]:
    """Repository and ref that the notebooks are stamped with."""
    settings = json.loads((folder / "src" / SETTINGS).read_text(encoding="utf-8"))
    return settings["repository"], settings["ref"]


def write_address(folder: Path, repo: str) -> None:
    """Keep `owner/name` or `owner/name@ref` as the address of the series.

    Raises:
        InputError: if it is neither.
    """
    match = re.fullmatch(r"([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)(?:@([A-Za-z0-9_./-]+))?", repo)
    if not match:
        raise InputError(f"repo: must be owner/name or owner/name@ref, got {repo!r}. Write it like ada/memstrat@v1.")
    settings = {"repository": match[1], "ref": match[2] or "main"}
    (folder / "src" / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def editions(folder: Path) -> list[Edition]:
    """All four: learner and solution, English and Chinese."""
    repository, ref = read_address(folder)
    return [Edition(language, is_solution, repository, ref) for is_solution in (False, True) for language in LANGUAGES]


def sources(folder: Path) -> list[Source]:
    """Every notebook of the series, in order."""
    return [read_source(path) for path in sorted((folder / "src").glob("[0-9][0-9]_*.py"))]


def make_notebook(source: Source, edition: Edition) -> Any:
    """One edition without outputs, as it must stand in the file."""
    return assemble(source, edition, {"first_cell": first_cell(edition), "badges": badges(source.name, edition)})


def first_cell(edition: Edition) -> str:
    """The text of the cell that finds or installs the package, with the address stamped in."""
    text = FIRST_CELL.read_text(encoding="utf-8")
    if edition.language == "zh":
        text = text.replace("# @title First cell: find memstrat, or install it (an installed torch stays as it is)",
                            "# @title 第一个单元：找到或安装 memstrat（不动已装好的 torch）")
    stamped = f'REPOSITORY, REF, LANGUAGE = "{edition.repository}", "{edition.ref}", "{edition.language}"'
    text = re.sub(r"^REPOSITORY, REF, LANGUAGE = .*$", stamped, text, flags=re.M)
    return text.rstrip() + "\n\n\nprint(ensure_memstrat(Path.cwd()))"


def badges(name: str, edition: Edition, label: str = "") -> str:
    """Links that open the learner edition on Colab and on ModelScope; `label` holds the place as {}."""
    path = Edition(edition.language, False, edition.repository, edition.ref).path(name).as_posix()
    where = f"github/{edition.repository}/blob/{edition.ref}/notebooks/{path}"
    label = label or {"en": "Open in {}", "zh": "在 {} 中打开"}[edition.language]
    return (f"[{label.format('Colab')}](https://colab.research.google.com/{where}) · "
            f"[{label.format('ModelScope')}](https://modelscope.cn/notebook/share/{where})")


def out_of_step(folder: Path) -> list[str]:
    """Editions whose cells differ from the source, that are missing, or that have no source."""
    expected = {edition.path(source.name): make_notebook(source, edition)
                for source in sources(folder) for edition in editions(folder)}
    found = {path.relative_to(folder) for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts}
    problems = [f"{path.as_posix()}: must come from a source, got none. Remove it."
                for path in sorted(found - set(expected))]
    for path, notebook in expected.items():
        if path not in found:
            problems.append(f"{path.as_posix()}: must exist, got no such file. Run make notebooks.")
        elif _cells(notebook) != _cells(json.loads((folder / path).read_text(encoding="utf-8"))):
            problems.append(f"{path.as_posix()}: must equal its source, got other cells. Run make notebooks.")
    return problems


def build(folder: Path, *, execute: bool = False, only: Iterable[str] = (),
          report: Callable[[str], None] = print) -> list[Path]:
    """Write every edition that is out of step, running solution editions first.

    Args:
        folder: `notebooks/` of a checkout.
        execute: run the solution editions even if their cells did not change.
        only: names (such as 02_fair_pairs) or their beginnings; all if empty.
        report: told each file written.

    Returns:
        The files written.
    """
    wanted = tuple(only) or ("",)
    written = []
    for source in sources(folder):
        if not source.name.startswith(wanted):
            continue
        for edition in editions(folder):
            path = folder / edition.path(source.name)
            notebook = make_notebook(source, edition)
            old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cells": []}
            if _cells(old) == _cells(notebook) and not (execute and edition.is_solution):
                continue
            if edition.is_solution and (execute or not _take_outputs(notebook, old)):
                run_notebook(notebook)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_to_text(notebook), encoding="utf-8")
            written.append(path)
            report(f"wrote {path.relative_to(folder).as_posix()}")
    stamp_readme(folder)
    return written


def run_notebook(notebook: Any) -> None:
    """Execute a notebook in place, in a folder of its own, and tidy its outputs."""
    from nbclient import NotebookClient

    with tempfile.TemporaryDirectory() as scratch:
        # Stages and checks write below the working folder: nothing of a build reaches the checkout.
        environment = os.environ | {"MEMSTRAT_STRICT": "1", "PYTHONPATH": str(FIRST_CELL.parents[2])}
        client = NotebookClient(notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", store_widget_state=False,
                                resources={"metadata": {"path": scratch}})
        client.execute(env=environment)
        for cell in notebook.cells:
            cell.metadata.pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if not _is_progress(output)]
                _hide_paths(cell, scratch)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}


def stamp_readme(folder: Path) -> None:
    """Put the badges of every notebook between the README's marks, if it has them."""
    readme = folder.parent / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    begin, end = README_BADGES
    if begin not in text or end not in text:
        return
    repository, ref = read_address(folder)
    rows = ["| notebook | English | 中文 |", "|---|---|---|"]
    for source in sources(folder):
        links = [badges(source.name, Edition(language, False, repository, ref), "{}") for language in LANGUAGES]
        rows.append(f"| `{source.name}` | {links[0]} | {links[1]} |")
    head, rest = text.split(begin, 1)
    stamped = head + begin + "\n" + "\n".join(rows) + "\n" + end + rest.split(end, 1)[1]
    if stamped != text:
        readme.write_text(stamped, encoding="utf-8")


def _cells(notebook: Any) -> list[tuple[Any, ...]]:
    """What must agree with the source: everything but outputs."""
    def text(cell: Any) -> str:
        return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])

    return [(cell["id"], cell["cell_type"], text(cell), dict(cell["metadata"])) for cell in notebook["cells"]]


def _take_outputs(notebook: Any, old: dict[str, Any]) -> bool:
    """Copy the outputs of an executed edition whose code is the same; False if it is not."""
    ours, theirs = ([cell for cell in cells if cell["cell_type"] == "code"]
                    for cells in (notebook.cells, _nbformat_cells(old)))
    if [(cell.id, cell.source) for cell in ours] != [(cell.id, cell.source) for cell in theirs]:
        return False
    for cell, executed in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = executed.outputs, executed.execution_count
    return True


def _nbformat_cells(notebook: dict[str, Any]) -> list[Any]:
    """Cells as nbformat holds them, their text in one piece."""
    import nbformat

    return nbformat.reads(json.dumps(notebook), as_version=4).cells if notebook["cells"] else []


def _is_progress(output: Any) -> bool:
    """Warnings and progress bars: of one moment, of no use to a reader."""
    if output.output_type == "stream":
        return output.name == "stderr"
    data = output.get("data", {})
    return "application/vnd.jupyter.widget-view+json" in data and bool(_BAR.search(str(data.get("text/plain", ""))))


def _hide_paths(cell: Any, scratch: str) -> None:
    for output in cell.outputs:
        if "text" in output:
            output.text = output.text.replace(scratch, ".")
        for kind, value in output.get("data", {}).items():
            if isinstance(value, str):
                output.data[kind] = value.replace(scratch, ".")


def _to_text(notebook: Any) -> str:
    import nbformat

    nbformat.validate(notebook)
    return nbformat.writes(notebook, version=4) + "\n"
