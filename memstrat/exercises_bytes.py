"""The three exercises on bytes: what autograd keeps, how to move it, and what no strategy moves.

Each stub's docstring is the whole contract; `memstrat.evidence_bytes` holds the reference. Writing
`make_host_hooks` needs torch; importing this module does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from memstrat.exercises import Exercise


def _exercise(grade_id: str, function_name: str) -> Exercise:
    return Exercise(grade_id, function_name, f"memstrat.exercises_bytes:{function_name}",
                    f"memstrat.evidence_bytes:{function_name}")


EXERCISES: dict[str, Exercise] = {
    exercise.grade_id: exercise
    for exercise in (
        _exercise("ex_saved_bytes", "count_saved_bytes"),
        _exercise("ex_pack_unpack", "make_host_hooks"),
        _exercise("ex_peak_floor", "floor_of_optimizer_phase"),
    )
}


def _not_done(grade_id: str) -> NoReturn:
    raise NotImplementedError(
        f"{grade_id}: not done yet. Write {EXERCISES[grade_id].function_name} from its docstring."
    )


def count_saved_bytes(batch_size: int, widths: list[int], activation: str, element_bytes: int) -> int:
    """Bytes that autograd keeps for the backward pass of a small network, counted by hand.

    The network: `Linear(widths[0], widths[1])`, then for each further width the activation and
    another `Linear`; the loss is `output.pow(2).mean()`. The input needs no gradient.

    What is kept: a `Linear` keeps its input, ReLU its output, GELU its input, `pow` its input.
    What counts: each storage once, however many operations keep it (ReLU's output is the next
    layer's input). What does not: parameters, which are in memory anyway.

    Args:
        batch_size: rows of the input.
        widths: at least two layer widths (elements), input first, output last.
        activation: `none`, `relu` or `gelu`; between layers, not after the last.
        element_bytes: bytes of one element, 4 for float32, 2 for bfloat16.

    Returns:
        Bytes, as a whole number.
    """
    _not_done("ex_saved_bytes")


def make_host_hooks() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Make the pair of hooks for `torch.autograd.graph.saved_tensors_hooks` that keeps tensors on the host.

    Returns:
        `(pack, unpack)`:

        * `pack(tensor)` returns whatever `unpack` needs. What it keeps is a real copy in host
          memory: it shares no storage with the tensor, also where that lies on the CPU already.
        * `unpack(packed)` returns a tensor with the device, dtype, shape and values of the one
          that was packed. It may be called more than once, and in any order.

        They take integer, bool and non-contiguous tensors too.
    """
    _not_done("ex_pack_unpack")


def floor_of_optimizer_phase(
    parameter_numels: list[int], element_bytes: int, optimizer: str, foreach: bool
) -> dict[str, int]:
    """Bytes that `optimizer.step()` needs whatever is done about activations.

    By then no saved tensor is left, so checkpoint, offload and hybrid cannot go below this floor.
    It is a lower bound: AdamW's `step` counters (a few bytes a tensor) are left out, and so is what
    a loop over tensors may still hold of the previous one.

    Args:
        parameter_numels: elements of each parameter tensor; a tied tensor is listed once.
        element_bytes: bytes of one element, the same for parameters, gradients and moments.
        optimizer: `AdamW`, or `SGD` (without momentum).
        foreach: True if the optimizer updates all tensors in one call.

    Returns:
        `parameters_bytes`, `gradients_bytes`; `moments_bytes`: two per parameter for AdamW, none
        for SGD; `temporaries_bytes`: for AdamW one more copy of all parameters with `foreach`,
        and twice the largest tensor without; none for SGD; `floor_bytes`: the sum of the four.
    """
    _not_done("ex_peak_floor")
