"""What every test runs under: one thread a process, no network, no folder or language of the person's own."""

from __future__ import annotations

import os

# Before anything imports torch or matplotlib; children and xdist workers inherit it. Two processes with
# two threads each slow each other many times over on two cores, since idle OpenMP threads spin.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_WAIT_POLICY="passive", HF_HUB_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false", MPLBACKEND="Agg")
for name in [name for name in os.environ if name.startswith("MEMSTRAT_")]:
    del os.environ[name]

from hypothesis import settings  # noqa: E402

# No deadline: a busy machine is no failure. Derandomised: the same code gives the same result.
settings.register_profile("memstrat", deadline=None, derandomize=True)
settings.load_profile("memstrat")
