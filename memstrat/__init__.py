"""memstrat: recompute activations, move them to the host, or both, and what it costs.

Importing this package imports neither torch nor the record models; reach for the modules you
need (`memstrat.stages`, `memstrat.evidence`, `memstrat.estimate`). What a notebook calls on the
package itself (`check`, `load_work`, `is_done`) is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memstrat.checks import check, is_done, load_work

__version__ = "0.1.0"
__all__ = ["__version__", "check", "is_done", "load_work"]

_FROM_CHECKS = ("check", "is_done", "load_work")


def __getattr__(name: str) -> Any:
    if name in _FROM_CHECKS:
        from memstrat import checks

        return getattr(checks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
