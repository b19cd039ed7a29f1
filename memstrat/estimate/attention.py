"""Which attention kernel a CUDA device would take, and its tensors, without a device.

`SdpaKernels` answers each call of `scaled_dot_product_attention` by the operation that the chosen
kernel runs, so that outputs, saved tensors and gradients have its shapes and types.

Source: `priority_order`, `use_flash_attention`, `use_mem_efficient_attention` and
`check_batch_size_and_num_heads_dense` in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
PyTorch 2.6 to 2.13. cuDNN's kernel, which recent versions prefer on capability 9.0 and 10.0 in half
precision, keeps the same tensors as flash and is counted as flash.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.attention import SDPBackend
from torch.overrides import TorchFunctionMode

from memstrat.errors import ModelError

KERNELS = ("auto", "math", "efficient", "flash")
_HALF = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


def choose_kernel(dtype: torch.dtype, is_grouped: bool, has_mask: bool, head_size: int,
                  capability: tuple[int, int], is_training: bool = True) -> str:
    """`flash`, `efficient` or `math`: what PyTorch picks on CUDA when left alone.

    Args:
        dtype: of query, key and value, after autocast.
        is_grouped: `enable_gqa` with fewer key than query heads.
        has_mask: an explicit mask was passed (a causal flag is none).
        head_size: of query, key and value alike.
        capability: the device's compute capability.
        is_training: gradients are wanted.
    """
    if dtype in _HALF and not has_mask and capability >= (8, 0) and head_size <= 256:
        # Backward above 192 wants the shared memory of 8.0, 9.0 or 10.0; above 2.6 only with dropout.
        return "flash"
    fits = dtype in (*_HALF, torch.float32) and (dtype != torch.bfloat16 or capability >= (8, 0))
    alignment = 4 if dtype == torch.float32 or not is_training else 8
    if fits and not is_grouped and capability >= (5, 0) and head_size % alignment == 0:
        return "efficient"
    return "math"


class SdpaKernels(TorchFunctionMode):
    """Run attention as the chosen kernel would; remember which kernels ran.

    Args:
        kernel: one of `KERNELS`.
        capability: the device's, for `auto`.
        is_cpu: trace a CPU run, which has a flash kernel of its own and no efficient one.
    """

    def __init__(self, kernel: str = "auto", capability: tuple[int, int] = (8, 0), is_cpu: bool = False):
        super().__init__()
        self.kernel, self.capability, self.is_cpu = kernel, capability, is_cpu
        self._cpu_flash_takes_groups = is_cpu and _cpu_flash_takes_groups()
        self.kernels_used: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.scaled_dot_product_attention:
            return self._attend(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
                scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
        is_grouped = enable_gqa and query.shape[1] != key.shape[1]
        kernel = self.kernel
        cpu_flash_fits = (self._cpu_flash_takes_groups or not is_grouped) and not dropout_p  # use_flash_attention_cpp
        if self.is_cpu and kernel != "math" and cpu_flash_fits:
            self.kernels_used.add("flash")
            bias = None if attn_mask is None else _additive(attn_mask, query.dtype)
            return _aten._scaled_dot_product_flash_attention_for_cpu(
                query, key, value, dropout_p, is_causal, attn_mask=bias, scale=scale)[0]
        if self.is_cpu:
            kernel = "math"
        elif kernel == "auto":
            kernel = choose_kernel(query.dtype, is_grouped, attn_mask is not None, query.shape[-1], self.capability)
        elif kernel == "flash" and (attn_mask is not None or query.dtype not in _HALF):
            raise ModelError(f"attention: must be a kernel that takes {query.dtype} without a mask, got 'flash'. "
                             "Choose auto, efficient or math, or --dtype-mode bf16.")
        elif kernel == "efficient" and is_grouped:
            raise ModelError("attention: must be a kernel that takes grouped queries, got 'efficient' for a model "
                             "with fewer key than query heads. Choose auto or math.")
        self.kernels_used.add(kernel)
        if kernel == "math":
            return _aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)[0]
        head_size = query.shape[-1]
        if kernel == "flash":
            # Flash pads heads to a multiple of 8 and needs the scale of the true size.
            scale = scale if scale is not None else 1 / math.sqrt(head_size)
            query, key, value = (_pad_heads(tensor, 8) for tensor in (query, key, value))
            output = _aten._scaled_dot_product_flash_attention(
                query, key, value, dropout_p, is_causal, False, scale=scale)[0]
            return output[..., :head_size]
        bias = None if attn_mask is None else _bias_of(attn_mask, query, key)
        return _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, dropout_p, is_causal, scale=scale)[0]


def _cpu_flash_takes_groups() -> bool:
    """Whether this torch's CPU kernel takes fewer key than query heads (older ones fall back to math)."""
    query, key = torch.zeros(1, 2, 4, 8), torch.zeros(1, 1, 4, 8)
    choice = torch._fused_sdp_choice(query, key, key, is_causal=True, enable_gqa=True)
    return choice == SDPBackend.FLASH_ATTENTION.value


def _pad_heads(tensor: torch.Tensor, multiple: int) -> torch.Tensor:
    missing = -tensor.shape[-1] % multiple
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A boolean mask as what is added to the scores. Source: `convert_boolean_attn_mask` in attention.cpp."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.full((), -math.inf, device=mask.device, dtype=dtype))


def _bias_of(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask as the efficient kernel takes it: of the query's type, rows aligned to 16 elements."""
    mask = _additive(mask, query.dtype)
    missing = -mask.shape[-1] % 16
    if missing:
        mask = torch.nn.functional.pad(mask, (0, missing))[..., :mask.shape[-1]]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
