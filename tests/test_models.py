"""Where models and data come from, and every refusal before weights are loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import OpenAIGPTConfig, PreTrainedTokenizerFast

from memstrat.errors import DataError, ModelError
from memstrat.models import (
    BUNDLED_CONFIGS,
    attention_context,
    build_model,
    check_attention,
    find_problems,
    load_config,
    locate_model,
    make_inputs,
)
from memstrat.workload import Workload

HUB_ID = "someone/some-model"


def make_workload(**overrides: Any) -> Workload:
    return Workload(**({"model_id": "memstrat/tiny-qwen2", "seq_len": 16} | overrides))


def write_config(folder: Path, **overrides: Any) -> Path:
    values = json.loads(BUNDLED_CONFIGS["memstrat/tiny-qwen2"].read_text())
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": 64}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values | small | overrides))
    return folder


def write_tokenizer(folder: Path) -> Path:
    """One token a letter: a is 0, b is 1, ..."""
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(ascii_lowercase)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture
def empty_caches(tmp_path, monkeypatch):
    """Neither hub has anything cached, and nothing may be fetched."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "ms"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *args, **kwargs: pytest.fail("a download began"))
    monkeypatch.setattr("memstrat.models.HF_HUB_OFFLINE", False)
    return tmp_path


@pytest.fixture(scope="module")
def saved_folder(tmp_path_factory):
    """A small pretrained model with a tokenizer, as save_pretrained writes it."""
    config = write_config(tmp_path_factory.mktemp("config"))
    folder = tmp_path_factory.mktemp("saved")
    build_model(make_workload(model_id="local/small", model_path=str(config)), "cpu").save_pretrained(folder)
    return write_tokenizer(folder)


# -- where it would come from ---------------------------------------------------------------


@pytest.mark.parametrize("model_id", ["memstrat/tiny-qwen2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_locate_bundled_config_never_downloads(empty_caches, model_id):
    location = locate_model(make_workload(model_id=model_id))
    assert (location.place, location.is_ready, location.needs_download) == ("bundled", True, False)
    assert location.describe() == f"{model_id}: config with seeded random weights, bundled with memstrat"


def test_locate_hub_id_needs_download(empty_caches):
    location = locate_model(make_workload(model_id=HUB_ID, weights="pretrained"))
    assert (location.place, location.path, location.needs_download) == ("huggingface", None, True)
    assert location.describe() == "someone/some-model: pretrained weights, to be downloaded from huggingface"


def test_locate_hub_id_offline_is_refused(empty_caches, monkeypatch):
    monkeypatch.setattr("memstrat.models.HF_HUB_OFFLINE", True)
    location = locate_model(make_workload(model_id=HUB_ID))
    assert not location.needs_download
    assert location.problems[0].startswith("model_id: must be in the local cache while HF_HUB_OFFLINE is set, got ")
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE"):
        load_config(make_workload(model_id=HUB_ID))


def test_locate_finds_huggingface_cache(empty_caches):
    repository = empty_caches / "hf" / "models--someone--some-model"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    snapshot = write_config(repository / "snapshots" / "abc")
    assert locate_model(make_workload(model_id=HUB_ID)).path == snapshot
    assert locate_model(make_workload(model_id=HUB_ID, weights="pretrained")).needs_download
    (snapshot / "model.safetensors").touch()
    assert locate_model(make_workload(model_id=HUB_ID, weights="pretrained")).is_ready


@pytest.mark.parametrize("below", ["models/someone/some-model", "someone/some-model"])
def test_locate_finds_modelscope_cache(empty_caches, below):
    folder = write_config(empty_caches / "ms" / below)
    location = locate_model(make_workload(model_id=HUB_ID))
    assert (location.place, location.path) == ("modelscope", folder)


def test_locate_modelscope_without_package_is_refused(empty_caches, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    problems = locate_model(make_workload(model_id=HUB_ID, model_source="modelscope")).problems
    assert len(problems) == 1 and "the package modelscope is not installed" in problems[0]


def test_locate_local_source_without_folder_is_refused(empty_caches):
    problems = locate_model(make_workload(model_id=HUB_ID, model_source="local")).problems
    assert len(problems) == 1 and problems[0].startswith("model_path: must be a folder with a config.json where ")


def test_locate_tiny_has_no_pretrained_weights(empty_caches):
    problems = locate_model(make_workload(weights="pretrained")).problems
    assert len(problems) == 1 and problems[0].startswith("weights: must be 'random' for 'memstrat/tiny-qwen2'")


def test_failed_download_is_one_clear_refusal(empty_caches, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("no route to host\nwith a long tail")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelError) as caught:
        load_config(make_workload(model_id=HUB_ID))
    assert str(caught.value) == (
        "model_id: must be on this machine or within reach, got 'someone/some-model', which huggingface does not give: "
        "no route to host Check the name and the network (HF_ENDPOINT names a mirror), or give --model FOLDER.")


# -- a folder of the user's -----------------------------------------------------------------


def test_folder_without_config_is_refused(tmp_path):
    problems = find_problems(make_workload(model_path=str(tmp_path)))
    assert problems == [f"model_path: must be a folder with a config.json, got {str(tmp_path)!r} without one. "
                        "Give --model the folder that save_pretrained wrote."]


def test_folder_without_weights_is_refused_only_when_pretrained(tmp_path):
    folder = str(write_config(tmp_path))
    assert find_problems(make_workload(model_path=folder)) == []
    problems = find_problems(make_workload(model_path=folder, weights="pretrained"))
    assert len(problems) == 1 and problems[0].startswith("model_path: must hold weights (*.safetensors)")


def test_config_file_alone_builds_random_weights(tmp_path):
    config = write_config(tmp_path) / "config.json"
    assert build_model(make_workload(model_path=str(config)), "cpu").config.hidden_size == 16


def test_folder_below_the_checkout_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    location = locate_model(make_workload(model_path="memstrat/configs/tiny-qwen2.json"))
    assert location.is_ready and location.path.name == "tiny-qwen2.json"


def test_unreadable_config_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "made_up"}')
    problems = find_problems(make_workload(model_path=str(tmp_path)))
    assert len(problems) == 1 and problems[0].startswith("model: must have a config.json that transformers can read")


def test_model_that_is_no_language_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    problems = find_problems(make_workload(model_path=str(tmp_path)))
    assert problems == ["model: must be a causal language model, got model_type 'vit'. "
                        "Choose a model that AutoModelForCausalLM can build."]


# -- a config that cannot do the task -------------------------------------------------------


def test_sequence_longer_than_the_model_is_refused():
    assert find_problems(make_workload(seq_len=2048)) == []
    problems = find_problems(make_workload(seq_len=2049))
    assert problems == ["seq_len: must be at most 2048 (the model's max_position_embeddings), got 2049. "
                        "Choose a shorter length, in the ladder too."]
    with pytest.raises(ModelError, match="must be at most 2048"):
        build_model(make_workload(seq_len=2049), "cpu")


def test_model_without_checkpointing_is_refused_for_strategies_that_need_it(tmp_path):
    OpenAIGPTConfig(n_embd=16, n_layer=2, n_head=2, vocab_size=64, n_positions=32).save_pretrained(tmp_path)
    problems = find_problems(make_workload(model_path=str(tmp_path), seq_len=64, attention="math"))
    assert [problem.split(":")[0] for problem in problems] == ["model", "seq_len", "attention"]
    assert problems[0].startswith("model: must support activation checkpointing, got OpenAIGPTLMHeadModel without it.")
    assert find_problems(make_workload(model_path=str(tmp_path), strategies=("baseline", "offload"))) == []


# -- the model ------------------------------------------------------------------------------


def test_random_model_is_seeded_float32_and_ready_to_train():
    model, again, other = (build_model(make_workload(seed=seed), "cpu") for seed in (42, 42, 43))
    weight = model.get_input_embeddings().weight
    assert torch.equal(weight, again.get_input_embeddings().weight)
    assert not torch.equal(weight, other.get_input_embeddings().weight)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert model.training and model.config.use_cache is False
    assert model.config._attn_implementation == "sdpa"
    assert model.get_output_embeddings().weight is weight
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_247_360


def test_pretrained_folder_gives_its_own_weights(saved_folder):
    workload = make_workload(model_path=str(saved_folder), weights="pretrained", seed=7)
    model = build_model(workload, "cpu")
    random = build_model(make_workload(model_path=str(saved_folder), seed=42), "cpu")
    other = build_model(make_workload(model_path=str(saved_folder), seed=7), "cpu")
    assert torch.equal(model.lm_head.weight, random.lm_head.weight)
    assert not torch.equal(model.lm_head.weight, other.lm_head.weight)
    assert model.training


def test_pretrained_folder_with_missing_weights_is_refused(saved_folder, tmp_path):
    from safetensors.torch import load_file, save_file
    folder = tmp_path / "broken"
    shutil.copytree(saved_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="without 1, such as model.layers.1.mlp.up_proj.weight"):
        build_model(make_workload(model_path=str(folder), weights="pretrained"), "cpu")


def test_truncated_weights_are_refused(saved_folder, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(saved_folder, folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    workload = make_workload(model_path=str(folder), weights="pretrained")
    for broken in (whole[:100], whole[:-1], b"", b"version https://git-lfs.github.com/spec/v1"):
        weights.write_bytes(broken)
        problems = find_problems(workload)  # told before anything is loaded or measured
        assert len(problems) == 1
        assert problems[0].startswith("model_path: must hold whole weights, got model.safetensors with: ")
        with pytest.raises(ModelError, match="must hold whole weights"):
            build_model(workload, "cpu")


@pytest.mark.parametrize("text", [
    "{", "", "[]", "null", "3", '{"model_type": ["llama"]}', '{"model_type": "llama", "hidden_size": "x"}'])
def test_any_broken_config_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    problems = find_problems(make_workload(model_path=str(tmp_path)))
    assert len(problems) == 1 and "\n" not in problems[0]
    assert problems[0].startswith("model: must have a config.json that transformers can read without custom code")


# -- the data -------------------------------------------------------------------------------


def test_random_ids_follow_the_recipe():
    workload = make_workload(micro_batch=2, seq_len=3, seed=42)
    train_ids, eval_ids = make_inputs(workload, load_config(workload), "cpu")
    generator = torch.Generator("cpu").manual_seed(45)
    assert torch.equal(train_ids, torch.randint(0, 2048, (2, 3), generator=generator))
    assert torch.equal(eval_ids, torch.randint(0, 2048, (2, 3), generator=generator))
    assert not torch.equal(train_ids, eval_ids)


def text_workload(folder: Path, text: str, **overrides: Any) -> Workload:
    path = folder.parent / f"{folder.name}.txt"
    path.write_text(text)
    return make_workload(**({"model_path": str(folder), "data": str(path), "seq_len": 2} | overrides))


def test_text_is_cut_from_its_beginning(saved_folder):
    workload = text_workload(saved_folder, "bcdefghij", micro_batch=2)
    train_ids, eval_ids = make_inputs(workload, load_config(workload), "cpu")
    assert train_ids.tolist() == [[1, 2], [3, 4]]
    assert eval_ids.tolist() == [[5, 6], [7, 8]]


def test_text_shorter_than_needed_is_refused(saved_folder):
    workload = text_workload(saved_folder, "bcdefgh", micro_batch=2)
    assert find_problems(workload) == [
        f"data: must hold at least 8 tokens (2 x micro-batch x seq_len), got 7 in '{saved_folder.name}.txt'. "
        "Use a longer text or a shorter --seq-len."]
    with pytest.raises(DataError):
        make_inputs(workload, load_config(workload), "cpu")


def test_text_without_tokenizer_is_refused(tmp_path):
    problems = find_problems(text_workload(write_config(tmp_path / "model"), "abcd"))
    assert len(problems) == 1 and problems[0].startswith("data: must be 'random' for a model without a tokenizer")


def test_text_that_is_not_utf8_is_refused(saved_folder):
    path = saved_folder.parent / "latin.txt"
    path.write_bytes(b"ab\xffcd")
    workload = make_workload(model_path=str(saved_folder), data=str(path), seq_len=2)
    assert find_problems(workload)[0].startswith("data: must be a UTF-8 text")


def test_text_that_changes_under_an_experiment_is_refused(saved_folder):
    workload = text_workload(saved_folder, "abcdefgh")
    Path(workload.data).write_text("hgfedcba")
    with pytest.raises(DataError, match="data: must stay as it is while an experiment runs"):
        make_inputs(workload, load_config(workload), "cpu")


def test_broken_tokenizer_is_refused(tmp_path):
    folder = write_tokenizer(write_config(tmp_path / "model"))
    (folder / "tokenizer.json").write_text("{")
    problems = find_problems(text_workload(folder, "abcdefgh"))
    assert len(problems) == 1 and problems[0].startswith("data: must be a text that the model's tokenizer can read")


def test_tokenizer_of_another_model_is_refused(tmp_path):
    folder = write_tokenizer(write_config(tmp_path / "model", vocab_size=8))
    problems = find_problems(text_workload(folder, "abcj"))
    assert problems == ["data: must give token ids below the model's vocabulary of 8, got 9. "
                        "Use the tokenizer that belongs to the model."]


# -- attention ------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["auto", "math", "flash"])
def test_attention_kernel_that_runs_here_is_accepted(attention):
    workload = make_workload(attention=attention)
    check_attention(workload, load_config(workload), "cpu")


def test_attention_kernel_that_cannot_run_is_refused():
    workload = make_workload(attention="efficient")
    with pytest.raises(ModelError, match="attention: must be a kernel that runs on cpu in torch.float32 with head size "
                                         "32, got 'efficient'"):
        check_attention(workload, load_config(workload), "cpu")


def test_attention_context_holds_the_kernel():
    with attention_context(make_workload(attention="math")):
        assert not torch.backends.cuda.flash_sdp_enabled() and torch.backends.cuda.math_sdp_enabled()
    assert torch.backends.cuda.flash_sdp_enabled()
