"""memstrat: recompute activations, move them to the host, or both, and what it costs.

Importing this package imports neither torch nor the record models; reach for the modules you
need (`memstrat.stages`, `memstrat.evidence`, `memstrat.estimate`).
"""

__version__ = "0.1.0"
