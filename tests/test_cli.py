"""The command line: what it passes on, what it prints, and how it refuses."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path

import pytest

from memstrat import cli, stages
from tests.fake_measure import plan_stages


@pytest.fixture(autouse=True)
def planned_figures(monkeypatch, tmp_path):
    plan_stages(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def memstrat(monkeypatch, capsys):
    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["memstrat", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        captured = capsys.readouterr()
        return end.value.code or 0, captured.out, captured.err
    return run


def test_json_is_the_record_and_nothing_else_on_stdout(memstrat):
    code, out, err = memstrat("g0", "--label", "a1", "--preset", "tiny", "--device", "cpu", "--json")
    record = json.loads(out)
    assert code == 0
    assert record["summary"]["best_candidate"] == "offload" and record["g0_reused"] is False
    assert record["record_path"] == "benchmarks/results/76_cpu_rehearsal_memory_a1.json"
    assert "a1 has no training baseline yet" in err


def test_every_workload_flag_reaches_the_record(memstrat, tmp_path):
    code, out, _ = memstrat(
        "g0", "--label", "a1", "--preset", "tiny", "--device", "cpu", "--weights", "random", "--data", "random",
        "--dtype-mode", "bf16", "--seq-len", "128", "--micro-batch", "2", "--warmup", "1", "--iters", "2", "--repeats",
        "1", "--seed", "7", "--ladder", "160,192", "--strategies", "baseline,checkpoint", "--optimizer", "adamw",
        "--no-foreach", "--no-fused", "--attention", "math", "--loss-head", "chunked", "--memory-cap-mb", "50",
        "--min-samples-per-s", "0.25", "--min-memory-saving-mb", "1", "--min-throughput-ratio", "0.5",
        "--max-val-loss", "9", "--results-dir", str(tmp_path / "mine"), "--json")
    assert code == 0
    record = json.loads(out)
    config = record["config"]
    expected = {
        "model_id": "memstrat/tiny-qwen2", "amp_dtype": "torch.bfloat16", "batch_size": 2, "seq_len": 128, "warmup": 1,
        "iters": 2, "repeats": 1, "seed": 7, "ladder": [160, 192], "strategies": ["baseline", "checkpoint"],
        "optimizer": "AdamW", "optimizer_foreach": False, "optimizer_fused": False, "attention": "math",
        "loss_head": "chunked"}
    assert {key: config[key] for key in expected} == expected
    assert record["budget"] == {"memory_cap_mb": 50, "min_samples_per_s": 0.25, "min_memory_saving_mb": 1,
                                "min_throughput_ratio": 0.5}
    assert record["quality_floor"]["max_val_loss"] == 9
    assert record["record_path"] == "mine/76_cpu_rehearsal_memory_a1.json"


def test_stages_show_tables_and_say_where_the_record_lies(memstrat, monkeypatch):
    monkeypatch.setattr(stages, "g1", functools.partial(stages.g1, free_memory_mb=lambda: 1e6))
    flags = ("--label", "a1", "--preset", "tiny", "--device", "cpu")
    for command, words in (("baseline", flags), ("prepare", flags), ("g0", flags), ("g1", flags),
                           ("review", flags[:2]), ("close", flags[:2]), ("show", flags[:2])):
        code, out, err = memstrat(command, *words)
        assert code == 0, err
        assert "a1" in out and "Traceback" not in err
    assert "rehearsal_only" in out and "CPU rehearsal" in out


def test_rejecting_is_a_result_not_a_refusal(memstrat):
    code, out, _ = memstrat(
        "g0", "--label", "a1", "--preset", "tiny", "--device", "cpu", "--memory-cap-mb", "1", "--json")
    assert code == 0 and json.loads(out)["summary"]["feasible_count"] == 0


@pytest.mark.parametrize(("words", "message"), [
    (("g0", "--label", "replace_with_unique_label"), "label: must be a name of your own"),
    (("g0", "--label", "a/b"), "label: must be 1 to 64 letters"),
    (("g0", "--label", "a1", "--preset", "huge"), "preset: must be one of"),
    (("g0", "--label", "a1", "--device", "tpu"), "device: must be one of"),
    (("g0", "--label", "a1", "--preset", "tiny", "--ladder", "300,x"), "ladder: must be whole numbers"),
    (("g0", "--label", "a1", "--preset", "tiny", "--strategies", "baseline,magic"), "unknown: magic"),
    (("g1", "--label", "a1", "--preset", "tiny", "--device", "cpu"), "Run memstrat g0 --label a1 first"),
    (("close", "--label", "a1"), "a1: the experiment is not ready to close."),
    (("show", "--label", "a1"), "label: must have records"),
    (("show", "absent.json"), "absent.json: must exist"),
    (("plot", "--label", "a1"), "label: must have records"),
])
def test_refusals_are_one_message_on_stderr(memstrat, words, message):
    code, out, err = memstrat(*words)
    assert (code, out) == (1, "")
    assert err.startswith("memstrat: ") and message in err
    assert "Traceback" not in err and len(err.splitlines()) <= 5


@pytest.mark.parametrize("words", [("g0",), ("g0", "--label", "a1", "--iters", "many"), ("g9",), ("show",)])
def test_usage_errors_exit_with_2(memstrat, words):
    assert memstrat(*words)[0] == 2


def test_ctrl_c_says_that_finished_runs_are_kept(memstrat, monkeypatch):
    def stop(*arguments, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "g0", stop)
    code, out, err = memstrat("g0", "--label", "a1", "--preset", "tiny", "--device", "cpu")
    assert (code, out) == (130, "")
    assert err.strip() == "memstrat: stopped. Finished runs are kept: the same stage continues under the same label."


def test_demo_takes_a_fresh_label_each_time(memstrat, monkeypatch):
    monkeypatch.setattr(stages, "g1", functools.partial(stages.g1, free_memory_mb=lambda: 1e6))
    for _ in range(2):
        code, out, err = memstrat("demo", "--device", "cpu")
        assert code == 0, err
        assert "records:" in out and "figures:" in out
    decisions = [path.name for path in sorted(Path("runs").glob("76_memory_strategy_decision_*"))]
    assert len(decisions) == 2 and all(name.startswith("76_memory_strategy_decision_demo-") for name in decisions)


def test_show_reads_a_record_made_elsewhere(memstrat, request):
    golden = request.config.rootpath / "tests" / "golden" / "public_reference.json"
    code, out, _ = memstrat("show", str(golden))
    assert code == 0 and "9,782.7" in out and "not recorded" in out
