"""Everything that can go wrong, in one file.

Each error is also the builtin a caller would expect, so `except ValueError` keeps working.
Messages follow one form: `<field or file>: must be <rule>, got <value>. <What to do next.>`
"""

from __future__ import annotations


class MemstratError(Exception):
    """Base of every refusal. The command line prints its text and exits with 1."""


class InputError(MemstratError, ValueError):
    """A flag, field or file of the user breaks a rule. Reports every problem found, one a line."""

    def __init__(self, problems: str | list[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))


class UnknownNameError(InputError):
    """A strategy, preset, stage, dtype mode or device that nothing is registered under."""


class LabelError(InputError):
    """A label that is a placeholder, unsafe as a file name, or of the other run mode."""


class DeviceError(MemstratError, RuntimeError):
    """The device asked for is absent or cannot do what was asked of it natively."""


class ModelError(MemstratError, ValueError):
    """A model cannot be found, built, traced or checkpointed."""


class DataError(MemstratError, ValueError):
    """A text cannot feed the workload."""


class RecordError(MemstratError, ValueError):
    """A record is truncated, not JSON, edited, or of another schema version."""


class MissingRecordError(MemstratError, FileNotFoundError):
    """A stage needs a record that is not there."""

    def __str__(self) -> str:
        return str(self.args[0])


class RecordConflictError(MemstratError, FileExistsError):
    """A record of that name exists with other content. Nothing is overwritten."""

    def __str__(self) -> str:
        return str(self.args[0])


class StorageError(MemstratError, OSError):
    """The results folder cannot be written, or its disk is full."""

    def __str__(self) -> str:
        return str(self.args[0])


class IdentityMismatchError(MemstratError, ValueError):
    """Two things that must be of one workload, machine or package set are not.

    `differences` maps each differing key to (expected, found).
    """

    def __init__(self, what: str, differences: dict[str, tuple[object, object]], next_step: str):
        self.differences = dict(differences)
        lines = [f"{what}: must agree in every identity field, got {len(differences)} difference(s)."]
        lines += [f"  {key}: {ours!r} here, {theirs!r} there" for key, (ours, theirs) in differences.items()]
        super().__init__("\n".join([*lines, next_step]))


class NotReadyError(MemstratError, RuntimeError):
    """A stage came before what it rests on. `problems` lists all of it."""

    def __init__(self, what: str, problems: list[str], next_step: str):
        self.problems = list(problems)
        super().__init__("\n".join([what, *(f"  - {problem}" for problem in problems), next_step]))


class ProcessError(MemstratError, RuntimeError):
    """A fresh process ended without the answer that was asked of it.

    `reason` is one line; the child's traceback or last output, if there is any, is a note of the error.
    """

    def __init__(self, what: str, reason: str, details: str = ""):
        self.reason = reason
        super().__init__(f"{what}: must return from its fresh process, got: {reason}. Run it again.")
        if details:
            self.add_note(details)


class LabelLockedError(MemstratError, RuntimeError):
    """Another living process works on this label."""


class CheckFailed(MemstratError, AssertionError):
    """An exercise's answer breaks a rule. Holds what a learner needs to find the place."""

    def __init__(self, message: str, *, grade_id: str, rule: str, text: str = "", case: str = "", seed: int = 0):
        self.grade_id, self.rule, self.text, self.case, self.seed = grade_id, rule, text, case, seed
        super().__init__(message)


class GradingError(MemstratError, RuntimeError):
    """A batch of submissions cannot be graded at all. One bad submission is a row, not this."""
