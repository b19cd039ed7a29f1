"""Exercises and their check, for the learner and for the grader. Torch-free until a torch exercise asks.

The random cases and the rules are here for anyone to read; a grader's hidden cases come from the
same generators under a seed that only the instructor knows.
"""

from memstrat.checks.api import CheckResult, check
from memstrat.checks.registry import EXERCISES, ExerciseSpec, exercise
from memstrat.checks.work import is_done, load_work

__all__ = ["EXERCISES", "CheckResult", "ExerciseSpec", "check", "exercise", "is_done", "load_work"]
