"""The expected answer of a case: from the reference, or, where torch knows it, from torch itself."""

from __future__ import annotations

import copy
from typing import Any

from memstrat.checks.cases import Case
from memstrat.checks.registry import ExerciseSpec
from memstrat.checks.wire import to_plain


def expected_answer(spec: ExerciseSpec, case: Case) -> Any:
    """The right answer in plain values. The case is not changed."""
    if spec.grade_id == "ex_saved_bytes":
        return count_kept_bytes(*case.args)
    if spec.grade_id == "ex_pack_unpack":
        return expected_hooks(case.args[0])
    return to_plain(spec.reference()(*copy.deepcopy(case.args), **copy.deepcopy(case.kwargs)))


def count_kept_bytes(batch_size: int, widths: list[int], activation: str, element_bytes: int) -> int:
    """Bytes of the distinct storages that autograd really packs, parameters left out."""
    import torch

    dtype = {2: torch.bfloat16, 4: torch.float32, 8: torch.float64}[element_bytes]
    layers: list[torch.nn.Module] = []
    for index, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        if index and activation != "none":
            layers.append(torch.nn.ReLU() if activation == "relu" else torch.nn.GELU())
        layers.append(torch.nn.Linear(inputs, outputs))
    network = torch.nn.Sequential(*layers).to(dtype)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = network(torch.ones(batch_size, widths[0], dtype=dtype)).pow(2).mean()
        total = sum(storage.nbytes() for storage in kept.values())
    del loss
    return total


def expected_hooks(description: dict[str, Any]) -> dict[str, Any]:
    """What `adapters.observe_hooks` sees with a sound pair."""
    from memstrat.checks import adapters

    rows = []
    for one in description["tensors"]:
        seen = adapters.fingerprint(adapters.make_tensor(one)[1])
        rows.append({"is_tensor": True, "shares_storage": False, "on_host": True, **seen,
                     "sha256_again": seen["sha256"]})
    answer: dict[str, Any] = {"is_pair": True, "tensors": rows}
    if description["backward"]:
        answer["backward"] = adapters.backward_with(None, description["tensors"][0]["seed"])
    return answer
