"""The same training task predicted without a device.

* `trace`: one step acted out on `meta` tensors (`attention`, `autocast`, `scratch` and `shapes` serve it).
* `predict`: the trace replayed through the allocator model.
* `core`: a whole comparison; `search`: the longest sequence that fits; `ladder`: length by length.
* `advice`: what sets the peaks, in plain words; `compare`: predicted against measured.
"""

from memstrat.estimate.core import Estimate, StrategyEstimate, estimate, estimate_peak_bytes
from memstrat.estimate.devices import DEVICES, Device, find_device
from memstrat.estimate.trace import TraceSettings

__all__ = ["DEVICES", "Device", "Estimate", "StrategyEstimate", "TraceSettings", "estimate",
           "estimate_peak_bytes", "find_device"]
