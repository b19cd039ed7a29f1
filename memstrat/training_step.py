"""One optimizer step of a workload under a strategy, in its three phases.

Timed by `measure`, watched by `probe`. Does not cover evaluation's mode switches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import torch
from torch import nn

from memstrat import strategies
from memstrat.loss_heads import causal_lm_loss
from memstrat.models import attention_context
from memstrat.workload import OptimizerSpec, Workload


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
