"""Remember what an operation returned for tensors of the same shapes, and return that again.

On `meta` an operation only computes shapes, in Python; a model of many equal layers asks the same
questions over and over. Only operations whose results are new storages are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_NEVER = object()
GROUPED_MATMULS = frozenset({torch.ops.aten._grouped_mm.default} if hasattr(torch.ops.aten, "_grouped_mm") else ())
"""Experts' matrix products. On `meta` torch refuses types other than bf16, which CUDA takes."""


def grouped_matmul(left: torch.Tensor, right: torch.Tensor, offs: torch.Tensor | None = None,
                   bias: torch.Tensor | None = None, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """The result's shape: groups lie along a dimension that 2-D operands share (`offs` says where each ends)."""
    if left.dim() == 2 and right.dim() == 2:
        assert offs is not None
        size = (offs.shape[0], left.shape[0], right.shape[1])
    elif left.dim() == 2:
        size = (left.shape[0], right.shape[-1])
    elif right.dim() == 2:
        size = (left.shape[1], right.shape[1])
    else:
        size = (left.shape[0], left.shape[1], right.shape[2])
    return torch.empty(size, dtype=out_dtype or left.dtype, device="meta")


class ShapeCache:
    """Run operations on `meta` tensors, from memory where possible."""

    def __init__(self) -> None:
        self._results: dict[Any, Any] = {}
        self._is_functional: dict[Any, bool] = {}

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`func(*args, **kwargs)`, or new `meta` tensors like those it returned before."""
        if func in GROUPED_MATMULS:
            return grouped_matmul(*args, **kwargs)
        if not self._may_remember(func):
            return func(*args, **kwargs)
        key = (func, _key_of(args), _key_of(tuple(kwargs.items())) if kwargs else None)
        try:
            known = self._results.get(key)
        except TypeError:  # an argument that cannot be hashed
            return func(*args, **kwargs)
        if known is not None and known is not _NEVER:
            return known()
        result = func(*args, **kwargs)
        if known is None:
            self._results[key] = _recipe_of(result, args) or _NEVER
        return result

    def _may_remember(self, func: Any) -> bool:
        answer = self._is_functional.get(func)
        if answer is None:
            schema = func._schema
            answer = (bool(schema.returns)
                      and all(argument.alias_info is None for argument in (*schema.arguments, *schema.returns)))
            self._is_functional[func] = answer
        return answer


def _key_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride(), value.device.type
    if isinstance(value, (list, tuple)):
        return tuple(_key_of(item) for item in value)
    return type(value), value


def _recipe_of(result: Any, args: tuple[Any, ...]) -> Callable[[], Any] | None:
    """How to make such a result again; None where it is not only new `meta` tensors."""
    if isinstance(result, torch.Tensor):
        if result.device.type != "meta" or result.storage_offset() or _shares_storage(result, args):
            return None
        size, stride, dtype = tuple(result.shape), result.stride(), result.dtype
        if result.untyped_storage().nbytes() != _dense_bytes(size, stride, result.element_size()):
            return None
        return lambda: torch.empty_strided(size, stride, dtype=dtype, device="meta")
    if isinstance(result, (list, tuple)):
        recipes = [(lambda item=item: item) if item is None or isinstance(item, (int, float))
                   else _recipe_of(item, args) for item in result]
        if any(recipe is None for recipe in recipes):
            return None
        kind = type(result)
        return lambda: kind(recipe() for recipe in recipes)
    return None


def _dense_bytes(size: tuple[int, ...], stride: tuple[int, ...], element_size: int) -> int:
    if 0 in size:
        return 0
    return (1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))) * element_size


def _shares_storage(result: torch.Tensor, args: Any) -> bool:
    key = result.untyped_storage()._cdata
    return any(_shares_storage(result, arg) if isinstance(arg, (list, tuple))
               else isinstance(arg, torch.Tensor) and arg.untyped_storage()._cdata == key for arg in args)
