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
from collections.abc import Callable
from typing import Any

import torch
from pydantic import Field

from memstrat import strategies
from memstrat.models import (
    build_model,
    check_attention,
    explain_kernel_error,
    load_config,
    make_inputs,
)
from memstrat.probe import observe_memory, observe_path
from memstrat.records import Run
from memstrat.training_step import TrainingStep
from memstrat.units import bytes_to_mib
from memstrat.workload import Frozen, Workload

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
