"""The learner's passing functions on disk: `my_work/<grade_id>.py`, and back.

A saved file stands on its own: the function, and the helpers, imports and constants it uses.
Closures over another function's variables cannot be saved; the check then says so.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memstrat.checks import texts
from memstrat.checks.registry import ExerciseSpec, exercise
from memstrat.checks.texts import choose_language, say


def work_folder() -> Path:
    """`MEMSTRAT_WORK`, else `my_work` of the enclosing checkout, else of the current folder."""
    if os.environ.get("MEMSTRAT_WORK"):
        return Path(os.environ["MEMSTRAT_WORK"])
    here = Path.cwd()
    roots = [folder for folder in (here, *here.parents)
             if (folder / ".git").exists() or (folder / "notebooks").is_dir()]
    return (roots[0] if roots else here) / "my_work"


def save(spec: ExerciseSpec, function: Callable[..., Any], language: str) -> str:
    """Save a passing function, and say where; or why that could not be done."""
    path = work_folder() / f"{spec.grade_id}.py"
    try:
        source = standalone_source(function, spec.function_name)
        _load(source, path, spec)
    except (OSError, TypeError, SyntaxError, LookupError):
        return say(texts.NOT_SAVED, language, reason=say(texts.NO_SOURCE, language))
    except Exception as error:  # the learner's own code runs here
        reason = f"{type(error).__name__}: {error}"
        return say(texts.NOT_SAVED, language, reason=say(texts.NOT_ALONE, language, reason=reason))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".py.tmp")
        partial.write_text(source, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        return say(texts.NOT_SAVED, language, reason=f"{error.strerror} ({path.parent}).")
    return say(texts.SAVED, language, path=f"{path.parent.name}/{path.name}")


def load_work(grade_id: str, *, language: str | None = None, folder: str | Path | None = None) -> Callable[..., Any]:
    """The saved function of an exercise, or the reference, with a printed note.

    Args:
        grade_id: which exercise.
        language: of the note; by default `MEMSTRAT_LANGUAGE`.
        folder: where saved functions lie; by default as for `check`.
    """
    spec, language = exercise(grade_id), choose_language(language)
    path = Path(folder or work_folder()) / f"{grade_id}.py"
    if not path.exists():
        print(say(texts.USES_REFERENCE, language, grade_id=grade_id, folder=f"{path.parent.name}/"))
        return spec.reference()
    try:
        return _load(path.read_text(encoding="utf-8"), path, spec)
    except Exception as error:  # the learner's own code runs here
        reason = f"{type(error).__name__}: {error}"
        print(say(texts.SAVED_IS_BROKEN, language, path=f"{path.parent.name}/{path.name}", reason=reason))
        return spec.reference()


def is_done(grade_id: str) -> bool:
    """True if a function of the learner has passed its check and is saved."""
    return (work_folder() / f"{exercise(grade_id).grade_id}.py").exists()


def _load(source: str, path: Path, spec: ExerciseSpec) -> Callable[..., Any]:
    namespace: dict[str, Any] = {"__name__": f"my_work.{spec.grade_id}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    function = namespace[spec.function_name]
    for name in _names_used(ast.parse(source)):
        if name not in namespace and not hasattr(builtins, name):
            raise NameError(f"name {name!r} is not defined")
    return function


def standalone_source(function: Callable[..., Any], public_name: str) -> str:
    """Source of a function with everything of its session that it uses.

    Raises:
        OSError, TypeError, LookupError: its source cannot be found.
    """
    function = inspect.unwrap(function)
    if not isinstance(function, types.FunctionType) or function.__closure__:
        raise TypeError("not a plain function")
    pieces: dict[str, str] = {}
    _collect(function.__name__, function, pieces)
    imports = [piece for piece in pieces.values() if piece.startswith(("import ", "from "))]
    others = [piece for piece in pieces.values() if not piece.startswith(("import ", "from "))]
    if function.__name__ != public_name:
        others.append(f"{public_name} = {function.__name__}")
    return "\n".join(["from __future__ import annotations", "", *imports, "", "\n\n\n".join(others), ""])


def _collect(name: str, function: types.FunctionType, pieces: dict[str, str]) -> None:
    """Add a function's definition and, before it, what it uses."""
    scope, defined = function.__globals__, _definitions(function.__code__.co_filename)
    if name not in defined:
        raise LookupError(f"no source of {name}")
    waiting, seen = [name], set()
    found: list[tuple[str, str]] = []
    while waiting:
        current = waiting.pop()
        if current in seen or current in pieces:
            continue
        seen.add(current)
        if current in defined:
            source, node = defined[current]
            found.append((current, source))
            waiting += sorted(_names_used(node))
        elif current in scope:
            value = scope[current]
            if isinstance(value, types.FunctionType) and value.__module__ == function.__module__:
                _collect(current, value, pieces)
            else:
                found.append((current, _import_or_literal(current, value)))
    for key, source in reversed(found):
        pieces[key] = source


def _definitions(filename: str) -> dict[str, tuple[str, ast.AST]]:
    """Top-level names of a cell or file: source and node of each. Cells are found through linecache."""
    text = "".join(linecache.getlines(filename))
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in text.splitlines()]
    text = "\n".join(lines)
    defined: dict[str, tuple[str, ast.AST]] = {}
    for node in ast.parse(text).body:
        first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
        source = "\n".join(lines[first - 1:node.end_lineno])
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined[node.name] = (source, node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
            defined |= {(alias.asname or alias.name).split(".")[0]: (source, node) for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            defined |= {target.id: (source, node) for target in ast.walk(node)
                        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)}
    return defined


def _import_or_literal(name: str, value: Any) -> str:
    """A line that makes a name of another cell again."""
    if isinstance(value, types.ModuleType):
        return f"import {name}" if value.__name__ == name else f"import {value.__name__} as {name}"
    home, own_name = getattr(value, "__module__", None), getattr(value, "__name__", getattr(value, "_name", None))
    if home in sys.modules and home != "__main__" and own_name and getattr(sys.modules[home], own_name, None) is value:
        return f"from {home} import {own_name} as {name}"
    if ast.literal_eval(repr(value)) == value:
        return f"{name} = {value!r}"
    raise LookupError(f"no source of {name}")


def _names_used(tree: ast.AST) -> set[str]:
    """Names a definition reads and does not bind itself, anywhere in it."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    bound |= {node.name for node in ast.walk(tree)
              if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node is not tree}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)} - bound
