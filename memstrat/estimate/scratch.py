"""Device memory that no returned tensor shows: workspaces of cuBLAS, temporaries inside kernels.

Covers what is large enough to matter for a language model's step. Not covered: cuDNN, sorting
buffers of short sequences, and what kernels take on other backends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

_aten = torch.ops.aten
MATMULS = frozenset({_aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default,
                     _aten.addbmm.default})
BIASED_MATMULS = frozenset({_aten.addmm.default})
"""`gemm_and_bias` in aten/src/ATen/native/cuda/Blas.cpp goes through cuBLASLt."""


def scratch_bytes(func: Any, args: Sequence[Any], result: Any) -> list[int]:
    """Sizes (bytes) of the temporaries that live while `func` runs on CUDA, beside its results."""
    sizes = _SCRATCH.get(func)
    return sizes(args, result) if sizes else []


def _safe_softmax(args: Sequence[Any], result: torch.Tensor) -> list[int]:
    """Softmax, the comparison with -inf, and its reduction by row come before the result.

    Source: `_safe_softmax` in aten/src/ATen/native/transformers/attention.cpp.
    """
    return [result.nbytes, result.numel(), result.numel() // max(1, result.shape[-1])]


def _flash_backward(args: Sequence[Any], result: Sequence[torch.Tensor]) -> list[int]:
    """The fp32 accumulator of the query's gradient, the row sums, and expanded key and value gradients.

    Source: `mha_bwd` in aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp: sequences
    round up to 128, heads to 32 up to a size of 128 and to 64 above.
    """
    query, key = args[1], args[2]
    batch, heads, length, head_size = query.shape
    rounded = -(-length // 128) * 128
    multiple = 32 if head_size <= 128 else 64
    accumulator = batch * rounded * heads * (-(-head_size // multiple) * multiple) * 4
    sizes = [batch * heads * rounded * 4, accumulator]
    if key.shape[1] != heads:
        sizes += [batch * key.shape[2] * heads * head_size * key.element_size()] * 2
    return sizes


def _efficient_backward(args: Sequence[Any], result: Sequence[torch.Tensor]) -> list[int]:
    """The row sums `delta`. Source: `_efficient_attention_backward` in attention_backward.cu."""
    query = args[1]
    return [query.shape[0] * query.shape[1] * query.shape[2] * 4]


def _embedding_backward(args: Sequence[Any], result: torch.Tensor) -> list[int]:
    """Sorted indices and partial sums, above 3,072 indices. Source: `embedding_dense_backward_cuda`
    in aten/src/ATen/native/cuda/Embedding.cu and `embedding_backward_cuda_kernel`.
    """
    gradient, indices = args[0], args[1]
    if indices.numel() <= 3072:
        return []
    return [indices.numel() * 8] * 4 + [indices.numel() * gradient.shape[-1] * 4 // 2]


_SCRATCH: dict[Any, Callable[[Sequence[Any], Any], list[int]]] = {
    _aten._safe_softmax.default: _safe_softmax,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
}
