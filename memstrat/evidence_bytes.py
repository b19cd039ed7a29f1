"""Reference of the three exercises on bytes. The contracts are the docstrings of `exercises_bytes`.

The hooks use methods of the tensors they are given, so torch is not imported here. The tests
compare the counts with autograd's own and the floor with the live bytes of a real step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memstrat import exercises_bytes


def _follows(stub: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Take the contract from the stub, so that it is written once."""

    def adopt(reference: Callable[..., Any]) -> Callable[..., Any]:
        reference.__doc__ = stub.__doc__
        return reference

    return adopt


@_follows(exercises_bytes.count_saved_bytes)
def count_saved_bytes(batch_size: int, widths: list[int], activation: str, element_bytes: int) -> int:
    hidden = sum(widths[1:-1]) * (2 if activation == "gelu" else 1)
    return element_bytes * batch_size * (widths[0] + hidden + widths[-1])


@_follows(exercises_bytes.make_host_hooks)
def make_host_hooks() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def pack(tensor: Any) -> tuple[Any, Any]:
        host = tensor.detach().to("cpu", copy=True)  # without copy=True a CPU tensor would only be handed back
        return tensor.device, host

    def unpack(packed: tuple[Any, Any]) -> Any:
        device, host = packed
        return host.to(device)

    return pack, unpack


@_follows(exercises_bytes.floor_of_optimizer_phase)
def floor_of_optimizer_phase(
    parameter_numels: list[int], element_bytes: int, optimizer: str, foreach: bool
) -> dict[str, int]:
    parameters = sum(parameter_numels) * element_bytes
    adamw = optimizer == "AdamW"
    temporaries = parameters if foreach else 2 * max(parameter_numels, default=0) * element_bytes
    parts = {
        "parameters_bytes": parameters,
        "gradients_bytes": parameters,
        "moments_bytes": 2 * parameters if adamw else 0,
        "temporaries_bytes": temporaries if adamw else 0,
    }
    return {**parts, "floor_bytes": sum(parts.values())}
