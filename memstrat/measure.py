"""One run: build, warm up, time, read peaks, evaluate; then two untimed steps for evidence.

1. warm-up steps (step 1 gives loss and gradient norm), 2. timed steps with nothing attached,
3. peaks, read before 4. the eval loss, 5. a step that a `PathObserver` watches, 6. a step for the
peaks by phase: from the allocator on CUDA, from counting live tensors on a CPU.

Call it in a fresh process (see `runner`): an earlier run's caches would change what it sees.
Knows nothing of budgets, and does not catch errors: what they mean is the runner's business.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from pydantic import Field
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from memstrat import strategies
from memstrat.loss_heads import causal_lm_loss
from memstrat.memory import LiveBytes
from memstrat.models import (
    attention_context,
    build_model,
    check_attention,
    explain_kernel_error,
    load_config,
    make_inputs,
)
from memstrat.records import PathEvidence, PhaseMemory, Run
from memstrat.saved_tensors import PathObserver, Watcher, watch_saved_tensors
from memstrat.units import bytes_to_mib
from memstrat.workload import Frozen, OptimizerSpec, Workload

PHASES = ("forward", "backward", "optimizer")
Report = Callable[[str, int, int], None]


class RunSpec(Frozen):
    """One run to make. Everything a fresh process needs to know."""

    workload: Workload  # already at its length and optimizer
    strategy: str
    repeat: int = Field(default=0, ge=0)
    device: str
    num_threads: int | None = Field(default=None, ge=1)
    strategy_pickle: bytes | None = None  # of a strategy that is not bundled (see strategies.to_bytes)


def measure_run(spec: RunSpec, report: Report = lambda kind, done, total: None) -> Run:
    """Measure one strategy once, in this process.

    Args:
        spec: what to run.
        report: called with the kind of step (`build`, `warmup`, `timed`, `eval`, `probe`), steps
            done and steps in all, after each.

    Returns:
        A run with status `ok` (and `path_problems` where the counts contradict the strategy's path),
        or `failed` where a loss or gradient is not finite. Other failures are raised.

    Raises:
        MemstratError: for a model, text, kernel or strategy that cannot be had.
        RuntimeError: whatever torch raises; `is_out_of_memory` tells what ran out.
    """
    started = time.perf_counter()
    if spec.num_threads is not None:
        torch.set_num_threads(spec.num_threads)
    facts = {"num_threads": torch.get_num_threads(), "load_average": os.getloadavg()[0]}
    try:
        values = _measure(spec, report)
    except FloatingPointError as error:
        values = {"status": "failed", "reason": str(error)}
    workload = spec.workload
    return Run(name=spec.strategy, repeat=spec.repeat, seq_len=workload.seq_len, optimizer=workload.optimizer.name,
               **values, **facts, wall_s=time.perf_counter() - started)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that device or host memory ran out."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        ("DefaultCPUAllocator" in text and "allocate memory" in text)
        or "CUDA out of memory" in text or "CUDA error: out of memory" in text
        or "CUBLAS_STATUS_ALLOC_FAILED" in text)


def make_optimizer(parameters: Iterator[nn.Parameter], spec: OptimizerSpec) -> torch.optim.Optimizer:
    """The optimizer with exactly the flags given; a flag that is None is torch's own choice."""
    flags = {"lr": spec.lr, "foreach": spec.foreach, "fused": spec.fused}
    if spec.name == "SGD":
        return torch.optim.SGD(parameters, momentum=spec.momentum or 0.0, **flags)
    return torch.optim.AdamW(parameters, **flags)


class TrainingStep:
    """One optimizer step of a workload under a strategy, in three phases."""

    def __init__(self, workload: Workload, strategy: strategies.Strategy, model: nn.Module,
                 train_ids: torch.Tensor):
        self.workload, self.strategy, self.model, self.train_ids = workload, strategy, model, train_ids
        self.optimizer = make_optimizer(model.parameters(), workload.optimizer)

    def loss_of(self, ids: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy (nats) of one micro-batch, in the workload's dtype mode and kernel."""
        workload = self.workload
        with ExitStack() as stack:
            stack.enter_context(attention_context(workload))
            if workload.dtype_mode == "bf16":
                stack.enter_context(torch.autocast(ids.device.type, torch.bfloat16))
            return causal_lm_loss(self.model, ids, ids, workload.loss_head)

    def forward(self) -> torch.Tensor:
        with self.strategy.step_context(self.model):
            return self.loss_of(self.train_ids)

    def backward(self, loss: torch.Tensor) -> None:
        with attention_context(self.workload):  # a recomputation in here must take the same kernel
            loss.backward()

    def __call__(self) -> torch.Tensor:
        """zero_grad, forward, backward, step. The loss, detached."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward()
        self.backward(loss)
        self.optimizer.step()
        return loss.detach()


def observe_path(step: TrainingStep) -> tuple[PathEvidence, list[str], int]:
    """One watched step: what the strategy did, attention operators seen, and bytes it held on the host."""
    vocab_size = step.model.config.get_text_config().vocab_size
    observer, attention = PathObserver(step.model, vocab_size), _AttentionOperators()
    step.optimizer.zero_grad(set_to_none=True)
    with observer, attention:
        with step.strategy.step_context(step.model):
            observer.look_for_foreign_hooks()
            loss = step.loss_of(step.train_ids)
        observer.start_backward()
        step.backward(loss)
    step.optimizer.step()
    return observer.evidence(), sorted(attention.seen), observer.peak_host_bytes


def observe_memory(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    """One untimed step: peaks by phase, and bytes alive after forward. Needs an optimizer with its state."""
    return _allocator_phases(step) if step.train_ids.device.type == "cuda" else _live_phases(step)


# -- inside ---------------------------------------------------------------------------------


def _measure(spec: RunSpec, report: Report) -> dict[str, Any]:
    workload, device = spec.workload, torch.device(spec.device)
    on_cuda = device.type == "cuda"
    done, total = 0, workload.warmup + workload.iters + 4

    def advance(kind: str) -> None:
        nonlocal done
        done += 1
        report(kind, done, total)

    strategy = strategies.from_bytes(spec.strategy_pickle) if spec.strategy_pickle else strategies.get(spec.strategy)
    check_attention(workload, load_config(workload), spec.device)
    model = build_model(workload, spec.device)
    train_ids, eval_ids = make_inputs(workload, model.config, spec.device)
    strategy.prepare(model)
    model.train()
    step = TrainingStep(workload, strategy, model, train_ids)
    torch.manual_seed(workload.seed)  # dropout, where a model has it, draws the same under every strategy
    advance("build")

    values: dict[str, Any] = _first_step(step)
    advance("warmup")
    for number in range(2, workload.warmup + 1):
        _finite(step(), f"warm-up step {number}: loss")
        advance("warmup")

    if on_cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    times_ms = []
    for number in range(1, workload.iters + 1):
        began = time.perf_counter()
        loss = step()
        if on_cuda:
            torch.cuda.synchronize(device)
        times_ms.append((time.perf_counter() - began) * 1000)
        values["loss"] = _finite(loss, f"timed step {number}: loss")
        advance("timed")
    step_time_ms = statistics.median(times_ms)
    values |= {"step_times_ms": times_ms, "step_time_ms": step_time_ms,
               "samples_per_s": workload.micro_batch * 1000 / step_time_ms}
    if on_cuda:
        values |= {"memory_source": "cuda_allocator",
                   "peak_memory_mb": bytes_to_mib(torch.cuda.max_memory_allocated(device)),
                   "peak_reserved_mb": bytes_to_mib(torch.cuda.max_memory_reserved(device))}

    values["eval_loss"] = _eval_loss(step, eval_ids)
    advance("eval")
    path, operators, host_bytes = observe_path(step)
    advance("probe")
    phases, resident_bytes = observe_memory(step)
    advance("probe")
    if not on_cuda:
        values |= {"memory_source": "tensor_accounting",
                   "peak_memory_mb": bytes_to_mib(max(phase.peak_allocated_bytes for phase in phases.values()))}
    problems = strategy.check_path(path)
    return values | {
        "status": "ok", "path": path, "execution_path_verified": not problems, "path_problems": problems,
        "phases": phases, "resident_after_forward_bytes": resident_bytes, "host_peak_mb": bytes_to_mib(host_bytes),
        "attention_kernels": operators}


def _first_step(step: TrainingStep) -> dict[str, float]:
    """The first step, which also gives what every strategy must share: loss and gradient norm."""
    step.optimizer.zero_grad(set_to_none=True)
    try:
        loss = step.forward()
        step.backward(loss)
    except RuntimeError as error:
        raise explain_kernel_error(step.workload, error)  # noqa: B904, the error itself where it is another one
    gradients = [parameter.grad for parameter in step.model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    step.optimizer.step()
    return {"step1_loss": _finite(loss, "warm-up step 1: loss"),
            "step1_grad_norm": _finite(norm, "warm-up step 1: gradient norm")}


def _eval_loss(step: TrainingStep, eval_ids: torch.Tensor) -> float:
    step.model.eval()
    try:
        with torch.no_grad():
            return _finite(step.loss_of(eval_ids), "eval: loss")
    finally:
        step.model.train()  # eval mode would switch checkpointing off without a word


def _finite(value: torch.Tensor, what: str) -> float:
    number = value.item()
    if not math.isfinite(number):
        raise FloatingPointError(f"{what} must be finite, got {number}")
    return number


class _AttentionOperators(TorchDispatchMode):
    """Names of the attention operators that ran. The math kernel shows by its softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if "scaled_dot_product" in name or name == "_safe_softmax":
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


class _HostTier(Watcher):
    """Counts what pack hooks allocate to the host tier."""

    def __init__(self, live: LiveBytes):
        self.host = live.host


def _live_phases(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    live = LiveBytes(step.train_ids.device.type, step.model.config.get_text_config().vocab_size)
    step.optimizer.zero_grad(set_to_none=True)
    live.register(step.model.parameters(), "parameters")
    live.register(step.model.buffers(), "other_temporaries")
    live.register([step.train_ids], "other_temporaries")
    for state in step.optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                with live.host() if name == "step" else nullcontext():  # CUDA keeps the counters on the host
                    live.register([value], "optimizer_state")
    with live, watch_saved_tensors(_HostTier(live)):
        with live.phase("forward"):
            loss = step.forward()
        with live.phase("backward"):
            step.backward(loss)
        with live.phase("optimizer"):
            step.optimizer.step()
    phases = {name: PhaseMemory(peak_allocated_bytes=phase.peak_device_bytes, host_peak_bytes=phase.peak_host_bytes,
                                categories_at_peak=phase.categories_at_peak)
              for name, phase in live.phases.items()}
    return phases, live.resident_after_forward_bytes


def _allocator_phases(step: TrainingStep) -> tuple[dict[str, PhaseMemory], int]:
    device, phases = step.train_ids.device, {}
    step.optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield
        torch.cuda.synchronize(device)
        phases[name] = PhaseMemory(peak_allocated_bytes=torch.cuda.max_memory_allocated(device))

    with phase("forward"):
        loss = step.forward()
    resident_bytes = torch.cuda.memory_allocated(device)
    with phase("backward"):
        step.backward(loss)
    with phase("optimizer"):
        step.optimizer.step()
    return phases, resident_bytes
