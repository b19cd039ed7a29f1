"""The first cell's logic: package present or absent, with and without network, on each platform."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from memstrat.notebooks import first_cell
from memstrat.notebooks.build import first_cell as text_of_first_cell
from memstrat.notebooks.source import Edition

EDITION = Edition("en", False, "ada/memstrat", "v1")


@pytest.fixture
def cell(monkeypatch):
    """The module with a stamped address; pip only notes what it was asked."""
    asked = []

    def run(command, **_):
        asked.append(command[command.index("--disable-pip-version-check") + 1:])
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(first_cell, "REPOSITORY", "ada/memstrat")
    monkeypatch.setattr(first_cell, "REF", "v1")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("MEMSTRAT_LANGUAGE", "en")
    for name in ("COLAB_RELEASE_TAG", "MODELSCOPE_ENVIRONMENT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(first_cell, "Path", lambda path: SimpleNamespace(is_dir=lambda: False))
    return SimpleNamespace(module=first_cell, asked=asked)


def pretend_installed(monkeypatch, *names):
    monkeypatch.setattr(first_cell, "has_module", lambda name: name in names)


def test_package_present_installs_nothing(cell, tmp_path):
    said = cell.module.ensure_memstrat(tmp_path)
    assert cell.asked == []
    assert said == f"memstrat 0.1.0 found · torch {importlib.metadata.version('torch')} · jupyter"


def test_package_absent_beside_torch_leaves_torch_alone(cell, monkeypatch, tmp_path):
    pretend_installed(monkeypatch, "torch")
    monkeypatch.setattr(first_cell, "missing_requirements", lambda: ["filelock>=3.13", "typer>=0.15"])
    said = cell.module.ensure_memstrat(tmp_path)
    assert cell.asked == [["--no-deps", "https://github.com/ada/memstrat/archive/v1.zip"],
                          ["filelock>=3.13", "typer>=0.15"]]
    assert said.startswith("memstrat 0.1.0 installed")


def test_package_absent_without_torch_installs_everything(cell, monkeypatch, tmp_path):
    pretend_installed(monkeypatch)
    cell.module.ensure_memstrat(tmp_path)
    assert cell.asked == [["https://github.com/ada/memstrat/archive/v1.zip"]]


def test_package_absent_in_a_checkout_is_installed_from_there(cell, monkeypatch, tmp_path):
    (tmp_path / "memstrat").mkdir()
    (tmp_path / "memstrat" / "__init__.py").touch()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "notebooks" / "zh").mkdir(parents=True)
    pretend_installed(monkeypatch, "torch")
    monkeypatch.setattr(first_cell, "missing_requirements", list)
    cell.module.ensure_memstrat(tmp_path / "notebooks" / "zh")
    assert cell.asked == [["--no-deps", str(tmp_path)]]


def test_missing_requirements_never_name_torch_nor_extras(cell, monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [
        "torch>=2.6", "pydantic>=2.9", 'nbval<0.12,>=0.11; extra == "test"'])
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert cell.module.missing_requirements() == ["pydantic>=2.9"]


def test_no_network_says_what_was_not_reachable_and_what_to_do(cell, monkeypatch, tmp_path):
    pretend_installed(monkeypatch, "torch")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(
        returncode=1, stdout="", stderr="WARNING: Retrying\nERROR: No matching distribution found"))
    with pytest.raises(RuntimeError) as refused:
        cell.module.ensure_memstrat(tmp_path)
    assert str(refused.value).startswith("https://github.com/ada/memstrat/archive/v1.zip: must be reachable for pip, "
                                         "got: ERROR: No matching distribution found")
    assert "offline" in str(refused.value)


def test_unknown_repository_is_refused_before_pip(cell, monkeypatch, tmp_path):
    pretend_installed(monkeypatch, "torch")
    monkeypatch.setattr(first_cell, "REPOSITORY", "OWNER/memstrat")
    with pytest.raises(RuntimeError, match="does not know its repository"):
        cell.module.ensure_memstrat(tmp_path)
    assert cell.asked == []


def test_python_too_old_is_refused_in_the_notebooks_language(cell, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "version_info", (3, 10, 12))
    monkeypatch.setattr(first_cell, "LANGUAGE", "zh")
    with pytest.raises(RuntimeError, match="需要 Python 3.11 到 3.13"):
        cell.module.ensure_memstrat(tmp_path)


def test_colab_is_told_by_its_module(cell, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
    assert cell.module.platform_name() == "colab"


def test_modelscope_is_told_by_its_work_folder(cell, monkeypatch):
    monkeypatch.setattr(first_cell, "Path", lambda path: SimpleNamespace(is_dir=lambda: path == "/mnt/workspace"))
    assert cell.module.platform_name() == "modelscope"


def test_plain_jupyter_is_neither(cell):
    assert cell.module.platform_name() == "jupyter"


def test_language_reaches_what_the_notebook_calls(cell, monkeypatch, tmp_path):
    monkeypatch.setattr(first_cell, "LANGUAGE", "zh")
    assert "已就绪" in cell.module.ensure_memstrat(tmp_path)
    assert os.environ["MEMSTRAT_LANGUAGE"] == "zh"


def test_cell_is_this_module_with_the_address_stamped_in(capsys):
    text = text_of_first_cell(EDITION)
    assert 'REPOSITORY, REF, LANGUAGE = "ada/memstrat", "v1", "en"' in text
    assert text.endswith("print(ensure_memstrat(Path.cwd()))")
    exec(compile(text, "first_cell", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.startswith("memstrat 0.1.0 found · torch ")


def test_cell_needs_nothing_but_the_standard_library():
    imported = {line.split()[1].split(".")[0] for line in text_of_first_cell(EDITION).split("\n")
                if line.startswith(("import ", "from "))}
    assert imported <= sys.stdlib_module_names
