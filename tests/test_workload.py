from __future__ import annotations

import pytest

from memstrat.errors import InputError, LabelError, UnknownNameError
from memstrat.workload import (
    CORE_STRATEGIES,
    OptimizerSpec,
    Workload,
    build,
    canonical_json,
    check_label,
    check_stage,
    short_hash,
)


def make_workload(**overrides) -> Workload:
    return build(Workload, {"model_id": "memstrat/tiny-qwen2", "seq_len": 256} | overrides)


def test_identity_has_the_contracts_fields_and_no_others():
    assert list(make_workload().identity()) == [
        "model_id", "weights", "data_sha256", "dtype", "amp_dtype", "mode", "batch_size", "seq_len", "optimizer",
        "optimizer_lr", "optimizer_foreach", "optimizer_fused", "loss_head", "attention", "warmup", "iters",
        "repeats", "seed", "strategies"]


def test_identity_of_bf16_keeps_fp32_weights():
    identity = make_workload(dtype_mode="bf16").identity()
    assert (identity["dtype"], identity["amp_dtype"], identity["mode"]) == ("float32", "torch.bfloat16", "bf16_probe")


def test_short_hash_is_the_head_of_a_known_sha256():
    # printf '{"a":1}' | sha256sum
    assert short_hash({"a": 1}) == "015abd7f5cc57a2d"


def test_canonical_json_refuses_nan():
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"loss": float("nan")})


@pytest.mark.parametrize("change", [
    {"seq_len": 257}, {"micro_batch": 2}, {"dtype_mode": "bf16"}, {"seed": 43}, {"warmup": 3}, {"iters": 6},
    {"repeats": 4}, {"weights": "pretrained"}, {"model_id": "a/b"}, {"attention": "math"}, {"loss_head": "chunked"},
    {"strategies": ["baseline", "offload"]}, {"strategies": ["offload", "baseline", "checkpoint", "hybrid"]},
    {"optimizer": {"name": "AdamW", "foreach": True}}, {"optimizer": {"name": "AdamW", "lr": 1e-4}},
])
def test_workload_id_changes_with_every_identity_field(change):
    assert make_workload(**change).workload_id != make_workload().workload_id


@pytest.mark.parametrize("change", [{"name": "other"}, {"model_source": "local"}, {"model_path": "somewhere"}])
def test_workload_id_ignores_what_is_no_identity(change):
    assert make_workload(**change).workload_id == make_workload().workload_id


def test_workload_id_follows_the_texts_bytes_not_its_path(tmp_path):
    for name, text in (("a.txt", "one"), ("b.txt", "one"), ("c.txt", "two")):
        (tmp_path / name).write_text(text)
    ids = [make_workload(data=str(tmp_path / name)).workload_id for name in ("a.txt", "b.txt", "c.txt")]
    assert ids[0] == ids[1] != ids[2]


def test_replace_renews_the_recipe_of_random_data():
    longer = make_workload().replace(seq_len=512)
    assert longer == make_workload(seq_len=512)
    assert longer.data_sha256 != make_workload().data_sha256


@pytest.mark.parametrize(("values", "message"), [
    ({"seq_len": 1}, "seq_len: must be greater than or equal to 2, got 1."),
    ({"warmup": 0}, "warmup: must be greater than or equal to 1, got 0."),
    ({"dtype_mode": "fp16"}, "dtype_mode: must be 'fp32' or 'bf16', got 'fp16'."),
    ({"strategies": []}, "strategies: must name baseline and no strategy twice"),
    ({"strategies": ["checkpoint"]}, "strategies: must name baseline and no strategy twice"),
    ({"strategies": ["baseline", "baseline"]}, "strategies: must name baseline and no strategy twice"),
    ({"strategies": ["baseline", "magic"]}, "unknown: magic"),
    ({"data": "no/such/text.txt"}, "data: must be 'random' or a text file, got 'no/such/text.txt'"),
    ({"color": "red"}, "color: must be a known key, got 'red'."),
    ({"optimizer": {"name": "AdamW", "foreach": True, "fused": True}}, "must not be both foreach and fused"),
    ({"optimizer": {"name": "AdamW", "momentum": 0.9}}, "must have no momentum with AdamW"),
    ({"optimizer": {"lr": float("inf")}}, "optimizer.lr: must be a finite number"),
])
def test_workload_refuses_with_field_rule_and_value(values, message):
    with pytest.raises(InputError) as error:
        make_workload(**values)
    assert message in str(error.value)


def test_workload_reports_every_problem():
    with pytest.raises(InputError) as error:
        make_workload(seq_len=0, iters=0, dtype_mode="int8")
    assert len(error.value.problems) == 3


@pytest.mark.parametrize("label", ["", "a/b", "a\\b", "..", ".hidden", "a b", "x" * 65, "name\n", None, 7])
def test_check_label_refuses_unsafe_labels(label):
    with pytest.raises(LabelError, match="label: must be 1 to 64 letters"):
        check_label(label)


def test_check_label_refuses_the_placeholder_unless_allowed():
    with pytest.raises(LabelError, match="placeholder"):
        check_label("replace_with_unique_label")
    assert check_label("replace_with_unique_label", allow_placeholder=True) == "replace_with_unique_label"


@pytest.mark.parametrize("label", ["a", "x" * 64, "qwen_a10-v1.2", "2026"])
def test_check_label_accepts_safe_labels(label):
    assert check_label(label) == label


def test_check_stage_names_the_four():
    assert check_stage("g1") == "g1"
    with pytest.raises(UnknownNameError, match="must be one of prepare, g0, g1, close, got 'g2'"):
        check_stage("g2")


def test_core_strategies_come_in_the_contracts_order():
    assert CORE_STRATEGIES == ("baseline", "checkpoint", "offload", "hybrid")
    assert make_workload().strategies == CORE_STRATEGIES


def test_optimizer_spec_leaves_flags_to_torch_by_default():
    spec = OptimizerSpec()
    assert (spec.name, spec.lr, spec.foreach, spec.fused) == ("AdamW", 1e-5, None, None)
