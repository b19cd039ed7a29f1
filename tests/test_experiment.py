from __future__ import annotations

import json

import pytest

from memstrat.errors import InputError, UnknownNameError
from memstrat.experiment import PRESETS_DIR, load_experiment, parse_ints, preset_names
from memstrat.workload import known_strategies


def test_preset_pressure_is_the_contracts():
    experiment = load_experiment("pressure")
    workload = experiment.workload
    assert (workload.model_id, workload.dtype_mode, workload.micro_batch, workload.seq_len) == (
        "Qwen/Qwen2.5-0.5B-Instruct", "fp32", 1, 768)
    assert (workload.warmup, workload.iters, workload.repeats, workload.seed) == (2, 5, 3, 42)
    assert workload.optimizer.model_dump() == {"name": "AdamW", "lr": 1e-5, "momentum": None, "foreach": None,
                                               "fused": None}
    assert experiment.ladder == (1024, 1280, 1536, 1792)
    assert experiment.budget.model_dump() == {"memory_cap_mb": 11200, "min_samples_per_s": 1.0,
                                              "min_memory_saving_mb": 512, "min_throughput_ratio": 0.70}


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads_with_its_own_ladder_and_budget(name):
    experiment = load_experiment(name)
    assert experiment.workload.name == name
    assert experiment.ladder and experiment.budget and experiment.about


def test_load_experiment_names_the_presets_it_has():
    with pytest.raises(UnknownNameError, match="preset: must be one of pressure, smollm2, tiny, got 'large'"):
        load_experiment("large")


@pytest.mark.parametrize("name", ["../presets/tiny", "/etc/passwd", "."])
def test_load_experiment_preset_is_a_name_not_a_path(name):
    with pytest.raises(UnknownNameError):
        load_experiment(name)


@pytest.mark.parametrize("ladder", [[256], [384, 384], [512, 384], [128]])
def test_ladder_must_increase_above_the_base(ladder):
    with pytest.raises(InputError, match="ladder: must be strictly increasing and above the base length 256"):
        load_experiment("tiny", ladder=ladder)


@pytest.mark.parametrize(("flags", "message"), [
    ({"memory_cap_mb": 0}, "memory_cap_mb: must be greater than 0, got 0."),
    ({"min_samples_per_s": -1}, "min_samples_per_s: must be greater than or equal to 0, got -1."),
    ({"min_throughput_ratio": 1.5}, "min_throughput_ratio: must be less than or equal to 1, got 1.5."),
    ({"min_throughput_ratio": 0}, "min_throughput_ratio: must be greater than 0, got 0."),
    ({"memory_cap_mb": float("inf")}, "memory_cap_mb: must be a finite number, got inf."),
    ({"max_val_loss": float("nan")}, "max_val_loss: must be a finite number"),
    ({"optimizer": "adam"}, "optimizer.name: must be 'AdamW' or 'SGD', got 'adam'."),
    ({"colour": 1}, "colour: must be a known setting, got 1."),
])
def test_load_experiment_refuses_bad_flags(flags, message):
    with pytest.raises(InputError) as error:
        load_experiment("tiny", **flags)
    assert message in str(error.value)


def test_load_experiment_reports_workload_and_budget_problems_together():
    with pytest.raises(InputError) as error:
        load_experiment("tiny", seq_len=0, memory_cap_mb=-1)
    assert len(error.value.problems) == 2


def test_load_experiment_scales_the_ladder_with_the_base_length():
    assert load_experiment("tiny", seq_len=128).ladder == (192, 256)
    assert load_experiment("pressure", seq_len=384).ladder == (512, 640, 768, 896)


def test_load_experiment_flags_override_the_preset():
    experiment = load_experiment("tiny", strategies=["baseline", "offload"], optimizer="sgd", foreach=False,
                                 attention="math", memory_cap_mb=99.0, max_val_loss=8.0)
    assert experiment.workload.strategies == ("baseline", "offload")
    assert experiment.workload.optimizer.model_dump() == {"name": "SGD", "lr": 1e-4, "momentum": 0.0, "foreach": False,
                                                          "fused": None}
    assert (experiment.workload.attention, experiment.budget.memory_cap_mb, experiment.max_val_loss) == (
        "math", 99.0, 8.0)


def test_load_experiment_own_model_leaves_the_budget_open(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    experiment = load_experiment(model=str(tmp_path))
    assert experiment.budget is None
    assert experiment.workload.model_id.startswith(f"local/{tmp_path.name}@")
    assert str(tmp_path) not in json.dumps(experiment.workload.identity())
    with pytest.raises(InputError, match="memory_cap_mb: must be given for a model of your own"):
        experiment.require_budget()


@pytest.mark.parametrize("default_preset", ["tiny", "pressure"])
@pytest.mark.parametrize(("files", "weights"), [((), "random"), (("model.safetensors",), "pretrained"),
                                                (("pytorch_model.bin",), "pretrained")])
def test_load_experiment_own_model_uses_the_weights_it_holds_on_every_device(tmp_path, files, weights, default_preset):
    for name in ("config.json", *files):
        (tmp_path / name).write_text("{}")
    for model in (tmp_path, tmp_path / "config.json"):
        experiment = load_experiment(model=str(model), default_preset=default_preset)
        assert experiment.workload.weights == weights
    assert load_experiment(model=str(tmp_path), weights="random").workload.weights == "random"


@pytest.mark.parametrize("model", ["./my-model", "/nowhere/my-model", "my model", "a/b/c", "~/m"])
def test_load_experiment_names_a_path_where_no_model_lies(model):
    with pytest.raises(InputError, match="nothing lies there"):
        load_experiment(model=model)


def test_load_experiment_own_model_under_a_named_preset_keeps_its_budget(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert load_experiment("tiny", model=str(tmp_path)).budget.memory_cap_mb == 30


def test_load_experiment_own_model_with_a_cap_takes_the_default_floors():
    budget = load_experiment(model="a/b", memory_cap_mb=4000.0).budget
    assert budget.model_dump() == {"memory_cap_mb": 4000.0, "min_samples_per_s": 0.0, "min_memory_saving_mb": 512.0,
                                   "min_throughput_ratio": 0.70}


def test_two_folders_of_one_name_are_two_models(tmp_path):
    ids = []
    for parent, config in (("a", "{}"), ("b", '{"x": 1}')):
        folder = tmp_path / parent / "model"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(config)
        ids.append(load_experiment(model=str(folder)).workload.model_id)
    assert ids[0] != ids[1]


def test_model_folder_without_config_is_refused(tmp_path):
    with pytest.raises(InputError, match="model: must be a folder with a config.json"):
        load_experiment(model=str(tmp_path))


@pytest.mark.parametrize(("name", "text", "message"), [
    ("mine.toml", "ladder = [", "workload: must be TOML or JSON, got mine.toml with"),
    ("mine.json", "{", "workload: must be TOML or JSON, got mine.json with"),
    ("mine.toml", "colour = 1\n[workload]\nmodel_id = 'a'\nseq_len = 8", "colour: must be one of about"),
    ("mine.toml", "ladder = [2]", "workload: must be a table in mine.toml"),
    ("mine.toml", "[workload]\nmodel_id = 'a'", "seq_len: must be given."),
])
def test_workload_file_problems_name_the_file_or_field(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as error:
        load_experiment(workload_file=tmp_path / name)
    assert message in str(error.value)


def test_workload_file_missing_is_one_message(tmp_path):
    with pytest.raises(InputError, match="workload: must be a file"):
        load_experiment(workload_file=tmp_path / "absent.toml")


def test_workload_file_reads_json_like_toml(tmp_path):
    content = {"ladder": [16], "workload": {"model_id": "a/b", "seq_len": 8}, "budget": {"memory_cap_mb": 10}}
    (tmp_path / "mine.json").write_text(json.dumps(content))
    experiment = load_experiment(workload_file=tmp_path / "mine.json")
    assert (experiment.workload.name, experiment.workload.seq_len, experiment.ladder) == ("mine", 8, (16,))


def test_preset_and_file_together_are_refused(tmp_path):
    with pytest.raises(InputError, match="preset: must not be given together"):
        load_experiment("tiny", tmp_path / "mine.toml")


@pytest.mark.parametrize("text", ["1024,x", "10.5", "-3"])
def test_parse_ints_refuses_what_is_no_length(text):
    with pytest.raises(InputError, match="ladder: must be whole numbers"):
        parse_ints(text)


def test_parse_ints_reads_commas():
    assert parse_ints("1024, 1280,") == [1024, 1280]


def test_known_strategies_begin_with_the_core_four():
    assert known_strategies()[:4] == ("baseline", "checkpoint", "offload", "hybrid")


def test_load_experiment_reports_ladder_problems_with_the_others():
    with pytest.raises(InputError) as error:
        load_experiment("tiny", iters=0, memory_cap_mb=-1, ladder=[3, 2], model=str(PRESETS_DIR), colour=1)
    assert [problem.partition(":")[0] for problem in error.value.problems] == [
        "model", "colour", "iters", "memory_cap_mb", "ladder"]


@pytest.mark.parametrize("text", ["", ",", "1024,,1280", "9" * 5000])
def test_ladder_text_must_be_lengths(text):
    with pytest.raises(InputError, match="ladder: must be whole numbers separated by commas") as error:
        load_experiment("tiny", ladder=text)
    assert len(str(error.value)) < 200


def test_empty_preset_name_is_refused():
    with pytest.raises(UnknownNameError, match="preset: must be one of pressure, smollm2, tiny, got ''"):
        load_experiment("")


def _file(**workload):
    return {"workload": {"model_id": "memstrat/tiny-qwen2", "seq_len": 8} | workload}


@pytest.mark.parametrize(("content", "message"), [
    ([1], "workload: must be a table of tables in mine.json, got [1]."),
    (None, "workload: must be a table of tables in mine.json, got None."),
    (_file(optimizer="AdamW"), "workload.optimizer: must be a table in mine.json"),
    (_file(optimizer=None), "workload.optimizer: must be a table in mine.json"),
    (_file() | {"budget": [1]}, "budget: must be a table in mine.json, got [1]."),
    (_file() | {"ladder": "16"}, "ladder: must be a valid tuple, got '16'."),
    (_file(data_sha256="ff"), "workload.data_sha256: must be left out of mine.json"),
    (_file(seq_len=[8]) | {"ladder": [9]}, "seq_len: must be a valid integer, got [8]."),
])
def test_workload_file_of_the_wrong_shape_is_refused(tmp_path, content, message):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as error:
        load_experiment(None, path)
    assert message in str(error.value)


def test_workload_file_that_is_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="workload: must be a file that can be read"):
        load_experiment(None, tmp_path)


@pytest.mark.parametrize(("data", "state"), [("no/such/text.txt", "not there"), ("/", "no file")])
def test_text_that_is_no_file_is_named_by_its_field(data, state):
    with pytest.raises(InputError) as error:
        load_experiment("tiny", data=data)
    assert error.value.problems == [
        f"data: must be 'random' or a text file, got {data!r}, which is {state}. Correct it and run again."]


@pytest.mark.parametrize("flag", ["seq_len", "micro_batch"])
def test_lengths_no_tensor_can_have_are_refused(flag):
    with pytest.raises(InputError, match=f"{flag}: must be less than 2147483648, got 1000000000000"):
        load_experiment("tiny", **{flag: 10**12, "ladder": []})


def test_workload_file_nested_without_end_is_refused(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(InputError, match="workload: must be TOML or JSON, got deep.json with:"):
        load_experiment(None, path)
