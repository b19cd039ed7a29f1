"""The reference on bytes against torch: the floor is what a real step holds."""

from __future__ import annotations

import pytest
import torch

from memstrat.evidence_bytes import floor_of_optimizer_phase
from memstrat.memory import LiveBytes


def test_floor_of_the_reference_task_is_five_copies_of_the_parameters():
    floor = floor_of_optimizer_phase([494_032_768], 4, "AdamW", True)
    assert floor["floor_bytes"] == 9_880_655_360
    assert round(floor["floor_bytes"] / 2**20) == 9423


@pytest.mark.parametrize(("optimizer", "foreach"), [("AdamW", True), ("AdamW", False), ("SGD", True), ("SGD", False)])
def test_floor_agrees_with_the_live_bytes_of_a_real_step(optimizer, foreach):
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in (40_000, 25_000, 10_000)]
    chosen = getattr(torch.optim, optimizer)(parameters, lr=1e-3, foreach=foreach)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    chosen.step()  # the moments appear in the first step
    state = [tensor for entry in chosen.state.values() for tensor in entry.values()]
    live = LiveBytes(device_type="cpu")
    live.register([*parameters, *(parameter.grad for parameter in parameters), *state], "model")
    with live, live.phase("optimizer"):
        chosen.step()
    peak = live.phases["optimizer"].peak_device_bytes
    floor = floor_of_optimizer_phase([40_000, 25_000, 10_000], 4, optimizer, foreach)["floor_bytes"]
    slack = 4 * 40_000 if optimizer == "AdamW" and not foreach else 0  # the loop still holds the previous temporary
    assert floor <= peak <= floor + slack + 100
