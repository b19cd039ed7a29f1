"""nbval's notebook and cell items, hardened. Pinned to nbval 0.11: it overrides names of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from queue import Empty
from typing import Any

from nbval.kernel import CURRENT_ENV_KERNEL_NAME
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from memstrat.checks.texts import RULE
from memstrat.grading.kernel import GuardedKernel, KernelDied

MAX_REPLAY_S = 60
_RULE_LABELS = tuple(f"{label}:" for label in RULE)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# What earlier cells may have put between a cell and its execution is taken out before given cells.
_RESET = """
def _reset(ip):
    ip.ast_transformers[:] = []
    ip.input_transformers_post[:] = []
    ip.custom_exceptions = ()
    ip.__dict__.pop("showtraceback", None)
    ip.__dict__.pop("run_cell", None)
_reset(get_ipython()); del _reset
"""


class NotebookFile(IPyNbFile):
    """A notebook whose kernel may die without taking later cells with it."""

    def collect(self) -> Iterator[Any]:
        names: dict[str, int] = {}
        for item in super().collect():
            grading = item.cell.metadata.get("nbgrader", {})
            name = grading.get("grade_id") or item.cell.get("id") or item.cell.metadata.get("id") or item.name
            names[name] = names.get(name, 0) + 1
            shown = name if names[name] == 1 else f"{name}-{names[name]}"
            options = item.options
            if grading.get("solution") or grading.get("grade"):
                options.update(skip=False, check_exception=False, check=False)
            yield NotebookCell.from_parent(self, name=shown, cell_num=item.cell_num, cell=item.cell, options=options)

    def setup(self) -> None:
        self.passed: list[str] = []
        self.setup_sanitize_files()
        self.start_kernel()

    def start_kernel(self) -> None:
        """A fresh kernel in which the cells that had passed have run."""
        option = self.config.option
        kernel_name = self.nb.metadata.get("kernelspec", {}).get("name", "python")
        if option.nbval_current_env:
            kernel_name = CURRENT_ENV_KERNEL_NAME
        elif option.nbval_kernel_name:
            kernel_name = option.nbval_kernel_name
        self.kernel = GuardedKernel(kernel_name, str(self.path.parent), option.nbval_kernel_startup_timeout,
                                    guard=option.memstrat_guard)
        deadline = time.monotonic() + MAX_REPLAY_S
        for source in self.passed:
            try:
                self.kernel.run_silently(source, max(1.0, deadline - time.monotonic()))
            except (Empty, KernelDied):
                self.passed.remove(source)
                return

    def ensure_kernel(self) -> None:
        """Replace a kernel that died or had to be stopped."""
        if not self.kernel.is_alive():
            self.kernel.clean_up()
            self.start_kernel()

    def teardown(self) -> None:
        if self.kernel is not None:
            if self.kernel.is_alive():
                self.kernel.stop()
            self.kernel.clean_up()


class NotebookCell(IPyNbCell):
    """One cell. Fails for any error the kernel replies, shown or not."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.output_timeout = 2
        self.grading = self.cell.metadata.get("nbgrader", {})

    def setup(self) -> None:
        """Not nbval's: after a timeout the later cells are still judged."""
        self.parent.timed_out = False

    def runtest(self) -> None:
        if self.options["skip"]:
            return super().runtest()
        self.parent.ensure_kernel()
        kernel = self.parent.kernel
        if not self.grading.get("solution"):
            kernel.run_silently(_RESET, 10)
        kernel.set_deadline(self.config.option.nbval_cell_timeout + 3)
        try:
            super().runtest()
        except KernelDied as error:
            self.raise_cell_error(str(error))
        finally:
            kernel.set_deadline(None)
        if kernel.reply_error and not self.options["check_exception"]:
            self.raise_cell_error("Cell execution caused an exception", "\n" + kernel.reply_error)
        self.parent.passed.append(self.cell.source)

    def repr_failure(self, excinfo: Any) -> Any:
        """For exercise and test cells one or two lines without the cell; nbval's own for others."""
        error = excinfo.value
        if not self.grading or not isinstance(error, NbCellError):
            return super().repr_failure(excinfo)
        lines = [line for line in _ANSI.sub("", error.inner_traceback or "").splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(_RULE_LABELS)] or lines[-1:]
        return "\n".join([f"{self.name}: {error}", *told[:1]])

    def reportinfo(self) -> Any:
        return self.path, None, f"{self.path.name}::{self.name}"
