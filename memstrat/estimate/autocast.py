"""CUDA's bf16 autocast, acted out on tensors without a device.

`torch.autocast` knows no `meta` device and switches itself off for `cuda` without a GPU. This mode
casts what CUDA's autocast would cast, before autograd sees it, so that the casts are nodes of the
graph and the weight copies live as long as they would. Whether autocast is on is read from the
CPU's autocast state, which checkpointing carries into the recomputation.

Only calls made from Python are seen: a cast inside a compiled composite (cross-entropy's softmax,
say) is covered by listing the composite.

Source of the lists: aten/src/ATen/autocast_mode.h (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE) and `cached_cast` in autocast_mode.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LOWER_PRECISION = frozenset("""
    linear matmul __matmul__ __rmatmul__ mm mv bmm addmm addmv addr addbmm baddbmm chain_matmul multi_dot
    vecdot einsum conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc prelu
    bilinear scaled_dot_product_attention
""".split())
FP32 = frozenset("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__
    softplus layer_norm group_norm cosine_similarity nll_loss cross_entropy kl_div l1_loss smooth_l1_loss
    huber_loss mse_loss margin_ranking_loss binary_cross_entropy_with_logits cdist renorm logsumexp
    prod softmax log_softmax cumprod cumsum sum norm
""".split())
PROMOTE = frozenset("addcdiv addcmul atan2 cross dot index_put tensordot scatter_add cat stack".split())


class CudaAutocast(TorchFunctionMode):
    """Cast arguments as CUDA's autocast does, while the CPU's autocast state is on."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self._weight_copies: dict[int, torch.Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.is_autocast_enabled("cpu"):
            name = getattr(func, "__name__", "")
            if name in LOWER_PRECISION:
                args, kwargs = self._cast(args, self.dtype), self._cast(kwargs, self.dtype)
            elif name in FP32 and not _has_dtype(kwargs):
                args, kwargs = self._cast(args, torch.float32), self._cast(kwargs, torch.float32)
            elif name in PROMOTE and _holds_fp32(args):
                args, kwargs = self._cast(args, torch.float32), self._cast(kwargs, torch.float32)
        return func(*args, **kwargs)

    def clear_cache(self) -> None:
        """Forget the weight copies, as leaving the outermost autocast block does."""
        self._weight_copies.clear()

    def _cast(self, value: Any, dtype: torch.dtype) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype == dtype or value.dtype not in (torch.float32, torch.bfloat16, torch.float16):
                return value
            return self._cached_copy(value, dtype)
        if isinstance(value, (list, tuple)):
            return type(value)(self._cast(item, dtype) for item in value)
        if isinstance(value, dict):
            return {key: self._cast(item, dtype) for key, item in value.items()}
        return value

    def _cached_copy(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        is_weight = (dtype == self.dtype and tensor.dtype == torch.float32 and tensor.is_leaf
                     and tensor.requires_grad and not tensor._is_view())
        if not is_weight:
            return tensor.to(dtype)
        if id(tensor) not in self._weight_copies:
            self._weight_copies[id(tensor)] = tensor.to(dtype)
        return self._weight_copies[id(tensor)]


class _Autocast(torch.autocast):
    """torch's own, where `meta` means the CPU's state: models switch autocast off around their rotations."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any):
        super().__init__("cpu" if device_type == "meta" else device_type, *args, **kwargs)


@contextmanager
def following_torch(mode: CudaAutocast) -> Iterator[None]:
    """Tie the mode to torch's autocast blocks: `meta` goes by the CPU's state, and whenever torch clears its
    cache, at the end of an outermost block, the mode clears its own.
    """
    clear_torch, block = torch.clear_autocast_cache, torch.autocast

    def clear() -> None:
        mode.clear_cache()
        clear_torch()

    torch.clear_autocast_cache, torch.autocast = clear, _Autocast
    try:
        yield
    finally:
        torch.clear_autocast_cache, torch.autocast = clear_torch, block


def _has_dtype(kwargs: dict[str, Any]) -> bool:
    return kwargs.get("dtype") is not None


def _holds_fp32(args: Any) -> bool:
    return any(_holds_fp32(arg) if isinstance(arg, (list, tuple))
               else isinstance(arg, torch.Tensor) and arg.dtype == torch.float32 for arg in args)
