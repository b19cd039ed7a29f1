"""The stages, one call each: baseline, prepare, g0, g1, review, close.

A stage reads records and writes at most one kind. Arguments are the command line's flags with
underscores; every stage returns a plain dict.
"""

from memstrat.stages._baseline import baseline
from memstrat.stages._close import close, review
from memstrat.stages._g0 import g0
from memstrat.stages._g1 import g1
from memstrat.stages._prepare import prepare

__all__ = ["baseline", "close", "g0", "g1", "prepare", "review"]
