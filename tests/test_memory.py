"""LiveBytes against tensors whose bytes are known."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from memstrat.memory import LiveBytes

KIB = 1024


def make_region_model(width: int = 64, num_regions: int = 3) -> nn.ModuleList:
    torch.manual_seed(0)
    return nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                         for _ in range(num_regions))


def run_step(model, *, use_checkpoint=False, foreach=False, live=None, batch=128):
    """One AdamW step; returns the loss and the gradients."""
    inputs = torch.randn(batch, 64, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
    live = live or LiveBytes()
    live.register(model.parameters(), "parameters")
    with live:
        with live.phase("forward"):
            hidden = inputs
            for region in model:
                hidden = checkpoint(region, hidden, use_reentrant=False) if use_checkpoint else region(hidden)
            loss = hidden.square().mean()
        with live.phase("backward"):
            loss.backward()
        with live.phase("optimizer"):
            optimizer.step()
    return live, loss.detach(), [p.grad for p in model.parameters()]


def test_livebytes_counts_a_storage_once_for_views_and_in_place_results():
    live = LiveBytes()
    with live, live.phase("forward"):
        base = torch.zeros(256, 4)
        view = base.view(4, 256)[1:]
        view.add_(1.0)
        base.t().mul_(2.0)
    assert live.peak_device_bytes == 4 * KIB


def test_livebytes_ignores_a_view_of_what_existed_before():
    outside = torch.zeros(1024)
    live = LiveBytes()
    with live:
        outside.view(32, 32).add_(1)
    assert live.peak_device_bytes == 0


def test_livebytes_follows_frees():
    live = LiveBytes()
    with live, live.phase("forward"):
        first = torch.zeros(1024)
        del first
        second = torch.zeros(2048)
        third = second.view(2, 1024)
        del second
        fourth = torch.zeros(1024)
    assert live.peak_device_bytes == 12 * KIB
    assert [point.device_bytes for point in live.timeline] == [0, 4096, 0, 8192, 12288]
    del third, fourth


def test_livebytes_follows_a_resized_storage():
    live = LiveBytes()
    with live:
        tensor = torch.zeros(1024)
        tensor.resize_(2048)
    assert live.peak_device_bytes == 8 * KIB
    del tensor


def test_livebytes_keeps_no_tensor_alive():
    live = LiveBytes()
    parameter = nn.Parameter(torch.zeros(8))
    live.register([parameter], "parameters")
    with live:
        tensor = parameter * 2
        ref = weakref.ref(tensor)
        del tensor
        gc.collect()
        assert ref() is None
    parameter_ref = weakref.ref(parameter)
    del parameter
    gc.collect()
    assert parameter_ref() is None


def test_livebytes_puts_host_allocations_into_the_host_tier():
    live = LiveBytes()
    with live, live.phase("forward"):
        on_device = torch.zeros(1024)
        with live.host():
            packed = on_device.clone()
        del on_device
    assert (live.peak_device_bytes, live.peak_host_bytes) == (4 * KIB, 4 * KIB)
    assert live.resident_after_forward_bytes == 0
    del packed


def test_livebytes_tells_tiers_by_device_when_meta_plays_the_gpu():
    live = LiveBytes(device_type="meta")
    with live:
        on_device = torch.zeros(1024, device="meta")
        on_host = torch.zeros(2048)
    assert (live.peak_device_bytes, live.peak_host_bytes) == (4 * KIB, 8 * KIB)
    del on_device, on_host


def test_livebytes_counts_what_a_backward_reads_back_as_saved_activations():
    live = LiveBytes()

    def pack(tensor):
        with live.host():
            return tensor.clone()

    weight = nn.Parameter(torch.ones(1024))
    with live:
        with live.phase("forward"), saved_tensors_hooks(pack, lambda packed: packed.clone()):
            loss = (weight * 2).square().sum()
        with live.phase("backward"):
            loss.backward()
    assert live.peak_host_bytes == 4 * KIB
    # The tensor read back, and two scalars: the loss and the constant 2.
    assert live.phases["backward"].categories_at_peak["saved_activations"] == 4 * KIB + 2 * 4


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("use_checkpoint", [False, True])
def test_livebytes_changes_no_result(use_checkpoint, foreach):
    _, loss, grads = run_step(make_region_model(), use_checkpoint=use_checkpoint, foreach=foreach)
    model = make_region_model()
    inputs = torch.randn(128, 64, generator=torch.Generator().manual_seed(1))
    hidden = inputs
    for region in model:
        hidden = region(hidden)
    plain = hidden.square().mean()
    plain.backward()
    assert torch.equal(loss, plain.detach())
    assert all(torch.equal(a, p.grad) for a, p in zip(grads, model.parameters(), strict=True))


def test_livebytes_splits_the_optimizer_peak_by_category():
    model = nn.ModuleList([nn.Linear(64, 64, bias=False)])
    live, *_ = run_step(model, foreach=True)
    weight = 64 * 64 * 4
    split = live.phases["optimizer"].categories_at_peak
    assert split["parameters"] == weight
    assert split["gradients"] == weight
    assert 2 * weight <= split["optimizer_state"] <= 2 * weight + 8
    # `foreach` makes one list of temporaries of the parameters' size.
    assert split["optimizer_temporaries"] == weight
    assert live.categories_at_peak.keys() == split.keys()


def test_livebytes_sees_that_checkpointing_holds_less_and_recomputes():
    kept, *_ = run_step(make_region_model())
    dropped, *_ = run_step(make_region_model(), use_checkpoint=True)
    rows = 128 * 64 * 4
    # Inside a region: the wide input of GELU and of the second Linear; at its ends: its input.
    assert kept.phases["forward"].categories_at_peak["saved_activations"] >= 3 * 8 * rows
    assert (kept.resident_after_forward_bytes - dropped.resident_after_forward_bytes) == 3 * 8 * rows
    # The root gradient is made with grad mode on, then each region runs again.
    assert (len(kept.recompute_ends), len(dropped.recompute_ends)) == (1, 1 + 3)
    assert dropped.phases["backward"].categories_at_peak["saved_activations"] >= 8 * rows


def test_livebytes_counts_tensors_of_the_vocabulary_as_logits():
    live = LiveBytes(vocab_size=1024)
    with live:
        with live.phase("forward"):
            logits = torch.zeros(8, 1024, requires_grad=True) * 1
            loss = torch.nn.functional.cross_entropy(logits, torch.zeros(8, dtype=torch.long))
            del logits
        with live.phase("backward"):
            loss.backward()
    # log_softmax's result is kept, its gradient comes beside it.
    assert live.phases["backward"].categories_at_peak["logits_and_loss"] >= 2 * 8 * 1024 * 4


def test_livebytes_counts_accumulation_in_place_as_autograd_does_without_a_mode():
    weight = nn.Parameter(torch.zeros(1024))
    live = LiveBytes()
    live.register([weight], "parameters")
    with live:
        with live.phase("forward"):
            loss = (weight * 2).sum() + (weight * 3).sum()
        with live.phase("backward"):
            loss.backward()
    # Parameter and two partial gradients; out of place there would be a third.
    assert live.phases["backward"].peak_device_bytes < 13 * KIB
    assert live.phases["backward"].categories_at_peak["parameters"] == 4 * KIB
    assert torch.equal(weight.grad, torch.full((1024,), 5.0))


def test_livebytes_survives_an_exception():
    live = LiveBytes()
    with pytest.raises(ValueError, match="stop"), live, live.phase("forward"):
        kept = torch.zeros(1024)
        raise ValueError("stop")
    torch.zeros(4096)
    assert live.peak_device_bytes == 4 * KIB
    assert live.phases["forward"].peak_device_bytes == 4 * KIB
    del kept


def test_livebytes_refuses_a_second_use():
    live = LiveBytes()
    with live:
        pass
    with pytest.raises(RuntimeError, match="one step"), live:
        pass
