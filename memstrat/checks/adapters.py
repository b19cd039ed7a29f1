"""What a pair of saved-tensor hooks did, told in shapes, counts and hashes.

Runs where the learner's hooks run. Needs torch and nothing else of this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch

Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def observe_hooks(make_hooks: Callable[[], Any], description: dict[str, Any]) -> dict[str, Any]:
    """Pack all described tensors, unpack twice, overwrite the tensors, unpack again; then perhaps a backward.

    The overwriting tells a copy from a view, whatever the packed object looks like.
    """
    hooks = make_hooks()
    if not (isinstance(hooks, (tuple, list)) and len(hooks) == 2 and all(callable(hook) for hook in hooks)):
        return {"is_pair": False}
    pack, unpack = hooks
    bases, tensors = zip(*(make_tensor(one) for one in description["tensors"]), strict=True)
    packed = [pack(tensor) for tensor in tensors]
    first = [fingerprint(unpack(item)) for item in packed]
    again = [fingerprint(unpack(item)) for item in reversed(packed)][::-1]
    shared = [any(shares_storage(found, base) for found in tensors_in(item))
              for item, base in zip(packed, bases, strict=True)]
    on_host = [all(found.device.type == "cpu" for found in tensors_in(item)) for item in packed]
    for base in bases:
        base.logical_not_() if base.dtype == torch.bool else base.zero_()
    after = [fingerprint(unpack(item)) for item in packed]
    rows = []
    for once, twice, later, is_shared, is_host in zip(first, again, after, shared, on_host, strict=True):
        overwritten = once == twice != later
        rows.append({"is_tensor": once["is_tensor"], "shares_storage": is_shared or overwritten, "on_host": is_host,
                     **once, "sha256_again": twice.get("sha256")})
    answer: dict[str, Any] = {"is_pair": True, "tensors": rows}
    if description["backward"]:
        answer["backward"] = backward_with((pack, unpack), description["tensors"][0]["seed"])
    return answer


def make_tensor(one: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """(base, tensor): the storage's owner, and a view of it in the layout asked for."""
    generator = torch.Generator("cpu").manual_seed(one["seed"])
    dtype = getattr(torch, one["dtype"])
    shape = [] if one["layout"] == "scalar" else [n + (one["layout"] == "sliced") for n in one["shape"]]
    if dtype.is_floating_point:
        base = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    else:
        base = torch.randint(0, 2 if dtype == torch.bool else 100, shape, generator=generator).to(dtype)
    base = base.to(one.get("device", "cpu"))
    if one["layout"] == "transposed":
        return base, base.permute(*reversed(range(base.dim())))
    if one["layout"] == "sliced":
        return base, base[tuple(slice(1, None) for _ in shape)]
    if one["layout"] == "expanded":
        return base, base.unsqueeze(0).expand(3, *base.shape)
    return base, base


def fingerprint(tensor: Any) -> dict[str, Any]:
    """Shape, dtype, device and a hash of the values."""
    if not isinstance(tensor, torch.Tensor):
        return {"is_tensor": False}
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    digest = hashlib.sha256(flat.view(torch.uint8).numpy().tobytes()).hexdigest()
    return {"is_tensor": True, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch."),
            "device": str(tensor.device), "sha256": digest}


def tensors_in(item: Any, depth: int = 4) -> list[torch.Tensor]:
    """Tensors inside tuples, lists, dicts and plain objects."""
    if isinstance(item, torch.Tensor):
        return [item]
    if depth == 0 or isinstance(item, (str, bytes, int, float, torch.dtype, torch.device)):
        return []
    parts = item.values() if isinstance(item, dict) else item if isinstance(item, (tuple, list)) \
        else getattr(item, "__dict__", {}).values()
    return [found for part in parts for found in tensors_in(part, depth - 1)]


def shares_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr() and left.numel() > 0


def backward_with(hooks: Hooks | None, seed: int) -> dict[str, Any]:
    """Gradients of a small network, as one hash, and how often each hook was called."""
    counts = {"num_packed": 0, "num_unpacked": 0}
    generator = torch.Generator("cpu").manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    pack, unpack = hooks or (lambda tensor: tensor, lambda packed: packed)

    def counted_pack(tensor: torch.Tensor) -> Any:
        counts["num_packed"] += 1
        return pack(tensor)

    def counted_unpack(packed: Any) -> torch.Tensor:
        counts["num_unpacked"] += 1
        return unpack(packed)

    with torch.autograd.graph.saved_tensors_hooks(counted_pack, counted_unpack):
        loss = network(torch.randn(2, 8, generator=generator)).pow(2).mean()
    loss.backward()
    gradients = [fingerprint(parameter.grad)["sha256"] for parameter in network.parameters()]
    return {**counts, "gradients": gradients}
