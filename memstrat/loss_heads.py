"""The loss head: transformers' own, or cross-entropy over chunks that never holds all logits.

Both give the same loss for the same labels (the model shifts them: position n predicts n + 1), within
rounding. Which one ran is a controlled variable: both sides of a comparison must share it.

Does not cover losses beside cross-entropy (an expert-balancing loss of a mixture of experts, say).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from memstrat.errors import ModelError, UnknownNameError

LOSS_HEADS = ("hf", "chunked")
CHUNK_TOKENS = 256
"""Positions whose logits exist at once. Small enough to matter, large enough to keep a GPU busy."""
IGNORE_INDEX = -100


def causal_lm_loss(model: nn.Module, input_ids: torch.Tensor, labels: torch.Tensor,
                   loss_head: str = "hf") -> torch.Tensor:
    """Mean cross-entropy over predicted tokens (nats), a scalar with its graph.

    Args:
        model: a causal language model of transformers.
        input_ids: token ids, (micro-batch, sequence).
        labels: the same shape, not shifted; -100 is ignored.
        loss_head: `hf`, or `chunked`: the logits of 256 positions at a time, computed again in
            backward. Chunks save memory only; every gradient is the same within rounding.

    Raises:
        UnknownNameError: if the loss head is neither.
        ModelError: if `chunked` finds no output embedding to call.
    """
    if loss_head == "hf":
        return model(input_ids=input_ids, labels=labels, use_cache=False).loss
    if loss_head != "chunked":
        raise UnknownNameError(f"loss_head: must be one of {', '.join(LOSS_HEADS)}, got {loss_head!r}. "
                               "Choose one of these.")
    head = model.get_output_embeddings()
    if head is None:
        raise ModelError(f"model: must have an output embedding for loss head 'chunked', got "
                         f"{type(model).__name__} without one. Use loss head 'hf'.")
    hidden = model.base_model(input_ids=input_ids, use_cache=False)[0]
    targets = nn.functional.pad(labels, (0, 1), value=IGNORE_INDEX)[..., 1:]
    return _ChunkedCrossEntropy.apply(hidden.flatten(0, 1), targets.flatten(), _logits_function(model, head),
                                      *head.parameters())


def _logits_function(model: nn.Module, head: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """What the model does between the last hidden state and the loss, by its configuration."""
    config = model.config.get_text_config()
    softcap = getattr(config, "final_logit_softcapping", None)   # Gemma 2 and 3
    scale = getattr(config, "logit_scale", None)                 # Cohere multiplies
    divisor = getattr(config, "logits_scaling", None)            # Granite divides

    def logits_of(hidden: torch.Tensor) -> torch.Tensor:
        logits = head(hidden)
        if divisor is not None:
            logits = logits / divisor
        if scale is not None:
            logits = logits * scale
        if softcap is not None:
            logits = torch.tanh(logits / softcap) * softcap
        return logits.float()

    return logits_of


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sum the loss chunk by chunk; in backward, compute each chunk's logits and gradients again.

    One gradient buffer for the head is filled in place, so that its size does not grow with the
    number of chunks. The head's parameters are not saved for backward (they are leaves that the
    model holds anyway), so saved-tensor hooks do not copy them.
    """

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, targets: torch.Tensor,
                logits_of: Callable[[torch.Tensor], torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, targets)
        ctx.logits_of, ctx.parameters, ctx.autocast = logits_of, parameters, _ambient_autocast(hidden)
        ctx.num_targets = (targets != IGNORE_INDEX).sum().clamp(min=1)
        total = hidden.new_zeros((), dtype=torch.float32)
        for rows, chunk_targets in zip(hidden.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS), strict=True):
            total += _sum_cross_entropy(logits_of(rows), chunk_targets)
        return total / ctx.num_targets

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden, targets = ctx.saved_tensors
        scale = grad_loss / ctx.num_targets
        grad_hidden = torch.empty_like(hidden)
        trained = [parameter for parameter in ctx.parameters if parameter.requires_grad]
        grads = [torch.zeros_like(parameter) for parameter in trained]
        chunks = zip(hidden.split(CHUNK_TOKENS), targets.split(CHUNK_TOKENS),
                     grad_hidden.split(CHUNK_TOKENS), strict=True)
        for rows, chunk_targets, grad_rows in chunks:
            _backward_of_chunk(ctx, rows, chunk_targets, grad_rows, trained, grads, scale)
        by_parameter = dict(zip(map(id, trained), grads, strict=True))
        return grad_hidden, None, None, *(by_parameter.get(id(parameter)) for parameter in ctx.parameters)


def _backward_of_chunk(ctx: Any, rows: torch.Tensor, targets: torch.Tensor, grad_rows: torch.Tensor,
                       trained: Sequence[torch.Tensor], grads: Sequence[torch.Tensor],
                       scale: torch.Tensor) -> None:
    """Add one chunk's share. A function of its own, so that its logits are gone before the next."""
    rows = rows.detach().requires_grad_()
    with torch.enable_grad(), ctx.autocast():
        loss = _sum_cross_entropy(ctx.logits_of(rows), targets)
    found, *head_grads = torch.autograd.grad(loss, [rows, *trained], grad_outputs=scale)
    grad_rows.copy_(found)
    for total, share in zip(grads, head_grads, strict=True):
        total.add_(share)


def _sum_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits, targets, ignore_index=IGNORE_INDEX, reduction="sum")


def _ambient_autocast(tensor: torch.Tensor) -> Callable[[], Any]:
    """The autocast state now, to enter again in backward, where autograd leaves it off.

    A device type without autocast of its own (`meta`) goes by the CPU's state.
    """
    device_type = tensor.device.type if torch.amp.is_autocast_available(tensor.device.type) else "cpu"
    enabled, dtype = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)
    return lambda: torch.autocast(device_type, dtype=dtype, enabled=enabled)
