"""Cases and rules of the three exercises on bytes. Torch-free: a tensor is described, not made."""

from __future__ import annotations

import random
from typing import Any

from memstrat.checks.cases import Case
from memstrat.checks.rules import Rules, Wrong

ACTIVATIONS = ("none", "relu", "gelu")
DTYPES = ("float32", "float64", "bfloat16", "int64", "bool")
LAYOUTS = ("contiguous", "transposed", "sliced", "expanded", "scalar")


def visible_saved_bytes() -> list[Case]:
    """Fixed cases of `ex_saved_bytes`: (batch size, widths, activation, element bytes)."""
    calls: list[tuple[str, list[Any]]] = [
        ("one layer", [2, [8, 4], "none", 4]),
        ("two layers without an activation", [2, [8, 16, 4], "none", 4]),
        ("ReLU", [2, [8, 16, 4], "relu", 4]),
        ("GELU", [2, [8, 16, 4], "gelu", 4]),
        ("half the bytes an element", [2, [8, 16, 4], "gelu", 2]),
        ("a larger batch", [64, [8, 16, 4], "relu", 4]),
        ("three layers", [4, [32, 64, 48, 10], "gelu", 4]),
    ]
    return [Case(name, args) for name, args in calls]


def random_saved_bytes(draw: random.Random, count: int) -> list[Case]:
    return [Case(f"random {i + 1}", [draw.randint(1, 9), [draw.randint(1, 40) for _ in range(draw.randint(2, 5))],
                                     ACTIVATIONS[i % 3], draw.choice([2, 4, 8])], source="random")
            for i in range(count)]


def _saved_answer(w: Wrong, *, batch: int | None = None, element: int | None = None, hidden: int | None = None,
                  first: int = 1, last: int = 1, parameters: int = 0) -> int:
    """What a count with one rule broken would give."""
    size, widths, activation, bytes_each = w.args
    factor = (2 if activation == "gelu" else 1) if hidden is None else hidden
    elements = first * widths[0] + factor * sum(widths[1:-1]) + last * widths[-1]
    weights = parameters * sum(a * b for a, b in zip(widths[1:], widths[2:], strict=False))
    return (elements * (size if batch is None else batch) + weights) * (bytes_each if element is None else element)


SAVED_BYTES_RULES: Rules = [
    ("parameters_not_counted", lambda w: w.got in (
        _saved_answer(w, parameters=1),
        _saved_answer(w) + w.args[3] * sum(a * b for a, b in zip(w.args[1], w.args[1][1:], strict=False)),
        _saved_answer(w) + w.args[3] * sum(a * b + b for a, b in zip(w.args[1], w.args[1][1:], strict=False)))),
    ("storage_counted_once", lambda w: w.args[2] == "relu" and w.got == _saved_answer(w, hidden=2)),
    ("gelu_keeps_its_input", lambda w: w.args[2] == "gelu" and w.got == _saved_answer(w, hidden=1)),
    ("element_size_ignored", lambda w: w.got in (_saved_answer(w, element=4), _saved_answer(w, element=1))),
    ("batch_ignored", lambda w: w.got == _saved_answer(w, batch=1)),
    ("input_is_kept", lambda w: w.got == _saved_answer(w, first=0)),
    ("loss_keeps_the_output", lambda w: w.got == _saved_answer(w, last=0)),
    ("hidden_layers_kept", lambda w: w.got == _saved_answer(w, hidden=0)),
]


def _tensors(draw: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"shape": [draw.randint(1, 6) for _ in range(draw.randint(1, 3))], "dtype": draw.choice(DTYPES),
             "layout": draw.choice(LAYOUTS), "seed": draw.randint(0, 10**6)} for _ in range(count)]


def visible_pack_unpack() -> list[Case]:
    """Fixed cases of `ex_pack_unpack`: descriptions of the tensors that the adapter makes."""
    one = {"shape": [3, 4], "dtype": "float32", "layout": "contiguous", "seed": 1}
    cases = [
        ("one float32 tensor", [one], False),
        ("a matrix and a vector", [one, {**one, "shape": [5], "seed": 2}], False),
        ("float64", [{**one, "dtype": "float64"}], False),
        ("bfloat16", [{**one, "dtype": "bfloat16"}], False),
        ("whole numbers and bools", [{**one, "dtype": "int64"}, {**one, "dtype": "bool"}], False),
        ("not contiguous", [{**one, "layout": layout} for layout in LAYOUTS[1:]], False),
        ("a real backward pass", [one], True),
    ]
    return [Case(name, [{"tensors": tensors, "backward": backward}]) for name, tensors, backward in cases]


def random_pack_unpack(draw: random.Random, count: int) -> list[Case]:
    return [Case(f"random {i + 1}", [{"tensors": _tensors(draw, draw.randint(1, 4)), "backward": i % 2 == 1}],
                 source="random") for i in range(count)]


def _tensor_field(*fields: str) -> Any:
    return lambda w: "tensors" in w.difference.path and any(field in w.difference.path for field in fields)


PACK_UNPACK_RULES: Rules = [
    ("pair_of_callables", lambda w: w.difference.path[-1:] == ("is_pair",)),
    ("unpack_gives_tensors", _tensor_field("is_tensor")),
    ("real_copy_on_host", _tensor_field("shares_storage", "on_host")),
    ("shape_restored", _tensor_field("shape")),
    ("dtype_restored", _tensor_field("dtype")),
    ("device_restored", _tensor_field("device")),
    ("values_restored", _tensor_field("sha256")),
    ("unpack_more_than_once", _tensor_field("sha256_again")),
    ("gradients_unchanged", lambda w: "backward" in w.difference.path),
]


def visible_peak_floor() -> list[Case]:
    """Fixed cases of `ex_peak_floor`: (elements per tensor, element bytes, optimizer, foreach)."""
    qwen = [494_032_768 - 136_134_656, 136_134_656]
    calls: list[tuple[str, list[Any]]] = [
        ("AdamW, all tensors in one call", [[100, 50], 4, "AdamW", True]),
        ("AdamW, tensor by tensor", [[100, 50], 4, "AdamW", False]),
        ("SGD", [[100, 50], 4, "SGD", True]),
        ("two bytes an element", [[100, 50], 2, "AdamW", True]),
        ("the model of the reference task", [qwen, 4, "AdamW", True]),
        ("SGD, tensor by tensor", [[7, 9, 11], 8, "SGD", False]),
    ]
    return [Case(name, args) for name, args in calls]


def random_peak_floor(draw: random.Random, count: int) -> list[Case]:
    return [Case(f"random {i + 1}", [[draw.randint(1, 10**6) for _ in range(draw.randint(1, 12))],
                                     draw.choice([2, 4, 8]), ("AdamW", "AdamW", "SGD")[i % 3], draw.random() < 0.5],
                 source="random") for i in range(count)]


def _at(key: str) -> Any:
    return lambda w: w.difference.path[:1] == (key,)


PEAK_FLOOR_RULES: Rules = [
    ("element_size_ignored", lambda w: _at("parameters_bytes")(w) and w.got["parameters_bytes"]
     in (sum(w.args[0]), sum(w.args[0]) * 4)),
    ("parameters_of_all_tensors", _at("parameters_bytes")),
    ("gradients_as_parameters", _at("gradients_bytes")),
    ("sgd_keeps_nothing", lambda w: w.args[2] == "SGD"
     and w.difference.path[0] in ("moments_bytes", "temporaries_bytes")),
    ("two_moments", _at("moments_bytes")),
    ("foreach_copies_all", lambda w: _at("temporaries_bytes")(w) and w.args[3]),
    ("largest_tensor_twice", _at("temporaries_bytes")),
    ("floor_is_the_sum", _at("floor_bytes")),
]
