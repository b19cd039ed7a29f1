"""One training step acted out on `meta` tensors: every allocation and release, in order.

The model, the strategy, the loss head and the optimizer are those of a real run; only the device is
missing. `meta` plays the GPU; what a strategy packs for the host is counted as the host's. The log
is replayed through an allocator by `memstrat.estimate.predict`.

Two steps are traced: the first makes the optimizer's state, the second is what all later ones repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers.masking_utils as masking_utils
from torch import nn
from torch.utils.flop_counter import flop_registry
from transformers import PreTrainedModel

from memstrat import strategies
from memstrat.errors import MemstratError, ModelError
from memstrat.estimate.attention import SdpaKernels
from memstrat.estimate.autocast import CudaAutocast, following_torch
from memstrat.estimate.devices import ANY_DEVICE, CUBLASLT_WORKSPACE_BYTES, Device
from memstrat.estimate.scratch import BIASED_MATMULS, MATMULS, scratch_bytes
from memstrat.estimate.shapes import ShapeCache
from memstrat.loss_heads import causal_lm_loss
from memstrat.memory import LiveBytes
from memstrat.memory.profile import Block, Event
from memstrat.models import build_model
from memstrat.saved_tensors import HostOffload, Watcher, watch_saved_tensors
from memstrat.training_step import make_optimizer
from memstrat.workload import OptimizerSpec, Workload


@dataclass(frozen=True)
class TraceSettings:
    """What decides the trace beside workload and strategy.

    `is_cpu` traces the CPU rehearsal: no workspaces, no scratch of CUDA's kernels.
    """

    device: Device = ANY_DEVICE
    use_reentrant: bool = False
    cublas_workspace_bytes: int | None = None
    """None: by the device's capability."""
    cublaslt_workspace_bytes: int = CUBLASLT_WORKSPACE_BYTES
    is_cpu: bool = False
    with_eval: bool = True
    """Also trace an evaluation pass after the steps; its peak is reported apart."""


@dataclass
class Trace:
    """The log of one strategy's steps. `ends` are the log's lengths after each part."""

    blocks: list[Block]
    events: list[Event]
    recompute_ends: dict[int, int]
    ends: dict[str, int]
    carried: list[tuple[int, int]]
    """Pairs of blocks: what the first step leaves to the second, and what the second leaves in its place."""
    kernels: tuple[str, ...]
    flops: dict[str, int] = field(default_factory=dict)
    """Floating-point operations of the second step: `forward`, `recompute`, `backward`."""
    parameter_bytes: int = 0


def trace_strategy(workload: Workload, strategy_name: str, settings: TraceSettings | None = None) -> Trace:
    """Trace two steps (and an evaluation) of a workload under a strategy.

    Raises:
        ModelError: if the model cannot be built or followed without its data.
    """
    settings = settings or TraceSettings()
    workload = workload.replace(weights="random", data="random", strategies=("baseline", strategy_name)
                                if strategy_name != "baseline" else ("baseline",))
    model = build_model(workload, "meta")
    strategy = strategies.get(strategy_name, engine=_HostCopies())
    strategy.prepare(model)
    if settings.use_reentrant and strategy_name in ("checkpoint", "hybrid"):
        # As in `strategies.enable_checkpointing`: transformers 5.24 renamed its switch.
        switch = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
        switch({"use_reentrant": True})
    try:
        return _trace(model, strategy, workload, settings)
    except (NotImplementedError, RuntimeError, ValueError, TypeError) as error:
        if isinstance(error, MemstratError):
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")[:160]
        raise ModelError(
            f"model: must run without looking at its data to be estimated, got {type(model).__name__}, which stops "
            f"with: {reason}. Measure it with g0 instead, or choose another model.") from error


def resolve_optimizer(spec: OptimizerSpec, is_cpu: bool) -> OptimizerSpec:
    """The flags as torch would set them on that device: `foreach` on CUDA unless fused, neither on a CPU."""
    foreach = spec.foreach if spec.foreach is not None else not (is_cpu or spec.fused)
    return spec.model_copy(update={"foreach": foreach, "fused": bool(spec.fused)})


# -- inside ---------------------------------------------------------------------------------


def _trace(model: nn.Module, strategy: strategies.Strategy, workload: Workload, settings: TraceSettings) -> Trace:
    live = _DeviceLog(settings, model.config.get_text_config().vocab_size)
    kernels = SdpaKernels(workload.attention, settings.device.capability, settings.is_cpu)
    autocast = CudaAutocast()
    optimizer = _make_optimizer(model, workload.optimizer, settings.is_cpu)
    ids = torch.empty((workload.micro_batch, workload.seq_len), dtype=torch.long, device="meta")
    live.register(model.parameters(), "parameters")
    live.register(model.buffers(), "other_temporaries")
    live.register([ids], "other_temporaries")
    ends, gradients = {"setup": len(live.events)}, []

    def loss_of() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=workload.dtype_mode == "bf16"):
            return causal_lm_loss(model, ids, ids, workload.loss_head)

    with ExitStack() as stack:
        for context in (_without_data_checks(), live, watch_saved_tensors(_HostTier(live)),
                        following_torch(autocast), kernels, autocast):
            stack.enter_context(context)
        for name in ("first", "second"):
            live.flops.clear()
            optimizer.zero_grad(set_to_none=True)
            with live.phase("forward"), strategy.step_context(model):
                loss = loss_of()
            with live.phase("backward"):
                _run_backward(loss)
            gradients.append(dict(live.gradient_blocks))
            with live.phase("optimizer"):
                optimizer.step()
            del loss
            ends[name] = len(live.events)
        flops = dict(live.flops)
        if settings.with_eval:
            model.eval()
            with live.phase("eval"), torch.no_grad():
                loss = loss_of()
            del loss
        ends["eval"] = len(live.events)
    return Trace(live.blocks, live.events, live.recompute_ends, ends,
                 [(gradients[0][place], block) for place, block in gradients[1].items() if place in gradients[0]],
                 tuple(sorted(kernels.kernels_used)), flops,
                 sum(parameter.nbytes for parameter in model.parameters()))


def _run_backward(loss: torch.Tensor) -> None:
    """`loss.backward()` by the engine itself.

    The public call is overridable: it would switch the modes above off while it runs, and with them
    the attention kernel and autocast of every recomputed region.
    """
    torch.autograd.Variable._execution_engine.run_backward(
        (loss,), (torch.ones_like(loss),), False, False, (), allow_unreachable=True, accumulate_grad=True)


class _DeviceLog(LiveBytes):
    """The log of `meta`'s storages, with CUDA's workspaces and scratch memory, and FLOPs by phase."""

    def __init__(self, settings: TraceSettings, vocab_size: int):
        super().__init__("meta", vocab_size)
        self.flops: dict[str, int] = {}
        self._settings = settings
        self._shapes = ShapeCache()
        self._workspaces: set[tuple[str, bool]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Below autograd nothing is left for the function modes to do.
        with torch._C.DisableTorchFunction():
            return self._dispatch(func, types, args, kwargs)

    def _dispatch(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in MATMULS and not self._settings.is_cpu:
            self._add_workspaces(func)
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if not self._settings.is_cpu:
            blocks = [self.log_malloc(size, "other_temporaries") for size in scratch_bytes(func, args, result)]
            for block in blocks:
                self.log_free(block)
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            self._count_flops(count(*args, **(kwargs or {}), out_val=result))
        return result

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return self._shapes.run(func, args, kwargs)

    def _add_workspaces(self, func: Any) -> None:
        """cuBLAS keeps one workspace for each thread that multiplies: the caller's and autograd's."""
        settings, thread = self._settings, "autograd" if self._phase == "backward" else "main"
        size = settings.cublas_workspace_bytes
        sizes = {False: size if size is not None else settings.device.cublas_workspace_bytes}
        if func in BIASED_MATMULS:
            sizes[True] = settings.cublaslt_workspace_bytes
        for is_lt, num_bytes in sizes.items():
            if num_bytes and (thread, is_lt) not in self._workspaces:
                self._workspaces.add((thread, is_lt))
                self.log_malloc(num_bytes, "other_temporaries")

    def _count_flops(self, num_flops: int) -> None:
        part = self._phase
        if part == "backward" and torch.is_grad_enabled():
            part = "recompute"
        self.flops[part] = self.flops.get(part, 0) + int(num_flops)


class _HostCopies(HostOffload):
    """Host copies that are never made: `meta` tensors that the watcher counts to the host tier."""

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor).copy_(tensor)


class _HostTier(Watcher):
    """Counts what pack hooks allocate to the host tier."""

    def __init__(self, live: LiveBytes):
        self.host = live.host


class _FusedOptimizer:
    """What a fused optimizer allocates: its state, counters on the device included, and nothing else.

    torch refuses fused optimizers on `meta`. Source: `_init_group` of torch/optim/adamw.py and sgd.py.
    """

    def __init__(self, model: nn.Module, spec: OptimizerSpec):
        self.parameters, self.spec = list(model.parameters()), spec
        self.state: list[torch.Tensor] = []

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        if self.state:
            return
        for parameter in self.parameters:
            if self.spec.name == "AdamW":
                self.state += [torch.zeros((), dtype=torch.float32, device="meta"),
                               torch.zeros_like(parameter), torch.zeros_like(parameter)]
            elif self.spec.momentum:
                self.state.append(torch.zeros_like(parameter))


def _make_optimizer(model: nn.Module, spec: OptimizerSpec, is_cpu: bool) -> Any:
    spec = resolve_optimizer(spec, is_cpu)
    return _FusedOptimizer(model, spec) if spec.fused else make_optimizer(model.parameters(), spec)


@contextmanager
def _without_data_checks() -> Iterator[None]:
    """Answer what transformers asks of the data: are sequences packed into one? Is there padding? No."""
    questions = [(PreTrainedModel, "warn_if_padding_and_no_attention_mask")]
    # Versions 4 do not ask whether sequences are packed: they build the mask of packed ones in any case.
    if masking_utils.find_packed_sequence_indices(torch.arange(4)[None]) is None:
        questions.append((masking_utils, "find_packed_sequence_indices"))
    originals = [(owner, name, getattr(owner, name)) for owner, name in questions if hasattr(owner, name)]
    for owner, name, _ in originals:
        setattr(owner, name, lambda *args, **kwargs: None)
    try:
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
