"""Hooks on saved tensors: real copies, exact counts and bytes, nothing left behind."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from memstrat.errors import ModelError
from memstrat.saved_tensors import (
    HostOffload,
    PathObserver,
    Watcher,
    counted_hooks,
    find_regions,
    hooks_are_active,
    watch_saved_tensors,
)

NOTHING = {"parameter": 0, "duplicate": 0, "logits": 0, "region_input": 0, "other": 0}


class Layered(nn.Module):
    """Embedding-like input 2x4 float32 (32 bytes), two regions of one Linear each, a head to 7 logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 4, bias=False)) for _ in range(2))
        self.others = nn.ModuleList([nn.Identity()])
        self.head = nn.Linear(4, 7, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden).pow(2).mean()


class GradientCheckpointingLayer(nn.Module):
    """Stands for transformers' class, which is known by its name."""


def observe(model: nn.Module, context, hidden: torch.Tensor | None = None, observer: PathObserver | None = None):
    observer = observer or PathObserver(model, vocab_size=7)
    with observer:
        with context:
            loss = model(torch.ones(2, 4) if hidden is None else hidden)
        observer.start_backward()
        loss.backward()
    return observer.evidence()


# -- moving ---------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [
    lambda: torch.arange(6.0).view(2, 3), lambda: torch.arange(6.0).view(2, 3).t(),
    lambda: torch.ones(3, dtype=torch.bool), lambda: torch.tensor(2), lambda: torch.ones(2, 1).expand(2, 3),
], ids=["dense", "transposed", "bool", "scalar", "expanded"])
def test_host_offload_copies_really_and_keeps_what_a_kernel_sees(make):
    tensor, engine = make(), HostOffload()
    device, host = engine.pack(tensor)
    back = engine.unpack((device, host))
    assert len({each.untyped_storage().data_ptr() for each in (tensor, host, back)}) == 3
    assert torch.equal(back, tensor) and back.dtype == tensor.dtype and back.device == tensor.device
    if tensor.is_contiguous() or tensor.t().is_contiguous():
        assert back.stride() == tensor.stride()


def test_torch_save_on_cpu_copies_nothing_on_a_cpu():
    # The reason why offloading has its own copy; if this changes, HostOffload could go.
    weight = torch.ones(3, requires_grad=True)
    with save_on_cpu():
        saved = (weight * weight).grad_fn._saved_self
    assert saved.data_ptr() == weight.data_ptr()


def test_engine_that_overrides_where_copies_live_is_used():
    class Doubling(HostOffload):
        def to_device(self, host, device):
            return 2 * super().to_device(host, device)
    weight = torch.tensor(3.0, requires_grad=True)
    with Doubling().hooks():
        loss = weight * weight
    loss.backward()
    assert weight.grad == 12.0  # d(w*w) = w + w with both factors doubled


# -- watching -------------------------------------------------------------------------------


def test_watcher_hears_packs_made_while_it_watches_and_no_others():
    class Counter(Watcher):
        num_packed = num_unpacked = 0

        def on_pack(self, tensor, packed):
            self.num_packed += 1

        def on_unpack(self, tensor):
            self.num_unpacked += 1

    counter, weight = Counter(), torch.ones(2, requires_grad=True)
    with HostOffload().hooks():
        weight.exp()
        with watch_saved_tensors(counter):
            loss = weight.exp().sum()
            with watch_saved_tensors(None):
                weight.exp()
            loss.backward()
        weight.exp()
    assert (counter.num_packed, counter.num_unpacked) == (1, 1)


def test_watcher_is_gone_after_an_error():
    with pytest.raises(KeyError), watch_saved_tensors(Watcher()):
        raise KeyError
    from memstrat import saved_tensors
    assert saved_tensors._watcher is None


def test_what_a_pack_allocates_lies_inside_the_host_context():
    from contextlib import contextmanager

    class Tier(Watcher):
        is_host = False

        @contextmanager
        def host(self):
            self.is_host = True
            yield
            self.is_host = False

    tier, seen = Tier(), []
    with watch_saved_tensors(tier), counted_hooks(lambda saved: seen.append(tier.is_host) or saved, lambda kept: kept):
        torch.ones(1, requires_grad=True).exp().sum().backward()
    assert seen == [True] and not tier.is_host


def test_hooks_are_active_sees_any_hooks_even_those_that_hand_through():
    assert not hooks_are_active()
    with saved_tensors_hooks(lambda saved: saved, lambda kept: kept):
        assert hooks_are_active()
    with save_on_cpu():
        assert hooks_are_active()
    assert not hooks_are_active()


# -- regions --------------------------------------------------------------------------------


def test_find_regions_prefers_checkpointing_layers_and_counts_outer_ones_only():
    outer, single = GradientCheckpointingLayer(), GradientCheckpointingLayer()
    outer.inner = GradientCheckpointingLayer()
    model = nn.Module()
    model.layers = nn.ModuleList([outer, single])
    model.longer = nn.ModuleList(nn.Identity() for _ in range(5))
    assert find_regions(model) == [outer, single]


def test_find_regions_falls_back_to_the_longest_list():
    model = Layered()
    assert find_regions(model) == list(model.layers)


def test_find_regions_refuses_a_model_without_any():
    with pytest.raises(ModelError, match="must have checkpointing layers or a ModuleList, got Linear without either"):
        find_regions(nn.Linear(2, 2))


# -- counting -------------------------------------------------------------------------------


def test_observer_counts_offloaded_bytes_by_kind():
    # Saved: input of layer 0 (32 B, no gradient, so its weight is not); input of layer 1 (32 B) and its
    # weight (64 B); input of the head (32 B) and its weight (112 B); the logits for pow (56 B).
    evidence = observe(Layered(), HostOffload().hooks())
    assert (evidence.num_regions, evidence.num_recomputed_regions) == (2, 0)
    assert (evidence.num_packed, evidence.num_unpacked) == (6, 6)
    assert evidence.packed_bytes == evidence.unpacked_bytes == 328
    assert evidence.packed_bytes_by_kind == {
        "parameter": 176, "duplicate": 0, "logits": 56, "region_input": 64, "other": 32}
    assert evidence.num_packed_inside_regions == 3
    assert evidence.num_region_inputs_packed == 2


def test_observer_tells_repeated_storages():
    class Repeats(Layered):
        def forward(self, hidden):
            return (hidden.sin() + hidden[:1].cos()).mean()
    evidence = observe(Repeats(), HostOffload().hooks(), torch.ones(2, 4, requires_grad=True))
    assert evidence.packed_bytes_by_kind == NOTHING | {"other": 32, "duplicate": 16}


def test_observer_tells_storages_apart_that_reuse_an_address():
    class Reuses(Layered):
        def forward(self, hidden):
            return sum((hidden + number).exp().sum() for number in range(50))
    # Each result of exp dies on the device once its copy is made, and the next takes its place.
    evidence = observe(Reuses(), HostOffload().hooks(), torch.ones(2, 4, requires_grad=True))
    assert evidence.packed_bytes_by_kind == NOTHING | {"other": 50 * 32}


def test_observer_without_hooks_counts_nothing():
    evidence = observe(Layered(), saved_tensors_hooks(lambda saved: saved, lambda kept: kept))
    assert (evidence.num_packed, evidence.num_unpacked, evidence.packed_bytes_by_kind) == (0, 0, NOTHING)


def test_observer_counts_bytes_on_the_host_and_forgets_what_is_freed():
    model = Layered()
    observer = PathObserver(model, vocab_size=7)
    observe(model, HostOffload().hooks(), observer=observer)
    gc.collect()
    assert (observer.peak_host_bytes, observer.host_bytes) == (328, 0)


def test_observer_leaves_no_hook_behind():
    model = Layered()
    observe(model, HostOffload().hooks())
    modules = list(model.modules())
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in modules)


@pytest.mark.parametrize("hooks", [save_on_cpu, lambda: saved_tensors_hooks(lambda saved: saved, lambda kept: kept)])
def test_observer_counts_foreign_hooks_as_a_pack_that_never_returns(hooks):
    observer = PathObserver(Layered())
    with observer, hooks():
        observer.look_for_foreign_hooks()
    assert (observer.evidence().num_packed, observer.evidence().num_unpacked) == (1, 0)


def test_observer_takes_hooks_that_report_for_no_strangers():
    observer = PathObserver(Layered())
    with observer, HostOffload().hooks():
        observer.look_for_foreign_hooks()
    assert observer.evidence().num_packed == 0


def test_observer_counts_what_a_checkpoint_keeps_of_a_region_as_outside_of_it():
    class Keep(torch.autograd.Function):
        """Saves as a checkpoint does that runs inside the layer's forward: arguments, and an empty tensor."""

        @staticmethod
        def forward(ctx, *arguments):
            ctx.save_for_backward(*arguments)
            return arguments[1].clone()

        @staticmethod
        def backward(ctx, grad):
            return None, ctx.saved_tensors[1] * 0 + grad, None

    class Region(nn.Module):
        def __init__(self, keeps_more):
            super().__init__()
            self.keeps_more, self.part = keeps_more, nn.Linear(4, 4, bias=False)

        def forward(self, hidden, position):
            kept = Keep.apply(torch.empty(0), hidden, position)
            return self.part(kept.exp() if self.keeps_more else kept)

    class Model(nn.Module):
        def __init__(self, keeps_more):
            super().__init__()
            self.layers = nn.ModuleList([Region(keeps_more)])

        def forward(self, hidden):
            return self.layers[0](hidden, position=torch.ones(3)).sum()

    hidden = torch.ones(2, 4, requires_grad=True)
    # Two are kept, the empty one does not count; inside lie the part's input and weight, and what exp saves.
    for keeps_more, num_packed, num_inside in ((False, 4, 2), (True, 5, 3)):
        evidence = observe(Model(keeps_more), HostOffload().hooks(), hidden)
        assert (evidence.num_packed, evidence.num_packed_inside_regions) == (num_packed, num_inside)
        assert evidence.packed_bytes_by_kind["region_input"] == 32
