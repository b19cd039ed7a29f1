"""A pytest plugin that makes nbval fit for learners' notebooks. Inert without --nbval or --nbval-lax.

A dead kernel is noticed within a second and replaced, an endless cell ends at
--nbval-cell-timeout, and later exercises are judged on their own: the cells that had passed are
run again in the new kernel. In exercise and test cells, skip and raises markers do nothing. Items
are named by `grade_id`, else by cell id. What a failing exercise reports holds no test cell.

That a notebook ran is no proof of right answers: the score comes from `memstrat.grading.score`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

_WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)  # xdist's own line
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memstrat", "grading notebooks with nbval")
    group.addoption("--memstrat-guard", action="store_true",
                    help="confine kernels: no network, no writing outside a temporary folder, limited memory and CPU")
    group.addoption("--memstrat-results", metavar="FILE", help="append one JSON line per executed cell")


def _is_active(config: pytest.Config) -> bool:
    return bool(config.getoption("nbval", False) or config.getoption("nbval_lax", False))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if _is_active(config) and config.getoption("dist", "no") == "load":
        config.option.dist = "loadfile"  # a notebook's cells share a kernel, so they share a worker


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Any, parent: pytest.Collector) -> Iterator[None]:
    found = yield
    if not _is_active(parent.config) or file_path.suffix != ".ipynb":
        return found
    from nbval.plugin import IPyNbFile

    from memstrat.grading.nbval_cells import NotebookFile

    return [NotebookFile.from_parent(parent, path=file_path) if type(one) is IPyNbFile else one for one in found]


@pytest.hookimpl
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    writer = _ResultsWriter.current
    if writer is not None and (report.when == "call" or report.outcome == "failed"):
        writer.write(report)


class _ResultsWriter:
    """Appends reports to a file as they come, so that a stopped batch keeps what it had."""

    current: _ResultsWriter | None = None

    def __init__(self, path: str):
        self.path = path

    def write(self, report: pytest.TestReport) -> None:
        text = _ANSI.sub("", report.longreprtext) if report.outcome == "failed" else ""
        message = _WORKER.sub("", text).strip()
        line = {"node": report.nodeid, "outcome": report.outcome, "message": message[-2000:],
                "duration_s": report.duration}
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def pytest_sessionstart(session: pytest.Session) -> None:
    path = session.config.getoption("memstrat_results")
    if path and not hasattr(session.config, "workerinput"):
        _ResultsWriter.current = _ResultsWriter(path)


def pytest_sessionfinish(session: pytest.Session) -> None:
    _ResultsWriter.current = None
