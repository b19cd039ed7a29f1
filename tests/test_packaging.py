"""What an installation rests on: ranges, pins, extras, package data, and the two commands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from memstrat.records import json_schema

CHECKOUT = Path(__file__).parent.parent
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = ("notebooks", "test")


def read_pins() -> dict[str, str]:
    """Pinned version by canonical name."""
    pins = {}
    for line in (CHECKOUT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            name, version = re.fullmatch(r"([A-Za-z0-9._-]+)==([^ ;]+)", line).groups()
            pins[canonicalize_name(name)] = version
    return pins


def direct_requirements() -> list[Requirement]:
    project = PROJECT["project"]
    extras = (text for name in EXTRAS for text in project["optional-dependencies"][name])
    return [Requirement(text) for text in (*project["dependencies"], *extras)]


def all_requirements() -> list[Requirement]:
    """What the package and its extras need here, followed through whatever is installed."""
    found, queue, seen = [], direct_requirements(), set()
    while queue:
        requirement = queue.pop()
        found.append(requirement)
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            texts = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            continue
        for needed in map(Requirement, texts):
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                queue.append(needed)
    return found


def test_extras_are_the_two_that_the_commands_install():
    assert tuple(PROJECT["project"]["optional-dependencies"]) == EXTRAS
    assert '-c constraints.txt -e ".[notebooks,test]"' in (CHECKOUT / "Makefile").read_text(encoding="utf-8")


def test_ranges_are_those_promised():
    ranges = {requirement.name: str(requirement.specifier) for requirement in direct_requirements()}
    assert ranges["torch"] == ">=2.6"
    assert ranges["transformers"] == "<6,>=4.56"
    assert ranges["nbval"] == "<0.12,>=0.11"
    assert PROJECT["project"]["requires-python"] == ">=3.11,<3.14"


def test_environment_installs_the_same_package_and_extras():
    environment = yaml.safe_load((CHECKOUT / "environment.yml").read_text(encoding="utf-8"))
    python, pip, packages = environment["dependencies"]
    assert python == "python" + PROJECT["project"]["requires-python"]
    assert pip == "pip"
    assert packages == {"pip": ["-c constraints.txt", "-e .[notebooks,test]"]}


def test_constraints_pin_every_requirement_within_its_range():
    pins = read_pins()
    requirements = all_requirements()
    assert len({canonicalize_name(requirement.name) for requirement in requirements}) > 50
    unpinned = {requirement.name for requirement in requirements if canonicalize_name(requirement.name) not in pins}
    outside = [str(requirement) for requirement in requirements
               if requirement.name not in unpinned
               and not requirement.specifier.contains(pins[canonicalize_name(requirement.name)], prereleases=True)]
    assert (unpinned, outside) == (set(), [])


def test_every_file_of_the_package_is_packaged():
    package = CHECKOUT / "memstrat"
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["memstrat"]
    data = {path for pattern in patterns for path in package.glob(pattern)}
    files = [path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    code = [path for path in files if path.suffix == ".py"]
    assert [path for path in files if path not in code and path not in data] == []
    assert [path for path in code if not (path.parent / "__init__.py").is_file()] == []
    assert package / "presets" / "tiny.toml" in data


def test_generated_schema_is_in_step():
    text = (CHECKOUT / "docs" / "records.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == json_schema(), "run make docs"


def test_ci_calls_exactly_make_test():
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert script[-1] == "exec make test"


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_names_the_python_it_needs(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(CHECKOUT / name, tmp_path)
    done = subprocess.run(["make", "install", "PYTHON=no-such-python"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == (
        "python: must be 3.11, 3.12 or 3.13 with the module venv, got none of: no-such-python.")
    assert not (tmp_path / ".venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_does_not_install_twice(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(CHECKOUT / name, tmp_path)
    stamp = tmp_path / ".venv" / ".installed"
    stamp.parent.mkdir()
    stamp.touch()
    command = ["make", "install", "PYTHON=no-such-python"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    stamp.unlink()
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 2
