"""`memstrat estimate` and `memstrat compare` from the command line."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from memstrat.cli import estimate as commands
from memstrat.errors import InputError, UnknownNameError
from memstrat.estimate.compare import advise_record
from memstrat.experiment import load_experiment

MIB = 2**20


@pytest.fixture(scope="module")
def app():
    app = typer.Typer()
    commands.add_to(app)
    return app


def run(app, *arguments):
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_estimate_prints_the_public_keys_as_json(app):
    output = run(app, "estimate", "--preset", "tiny", "--strategies", "baseline,checkpoint", "--device-memory",
                 "600MiB", "--other-memory", "100MiB", "--optimizer", "sgd", "--longest", "--json").stdout
    record = json.loads(output)
    assert record["assumptions"]["device_free_bytes"] == 500 * MIB
    assert [row["name"] for row in record["strategies"]] == ["baseline", "checkpoint"]
    assert all(row["fits"] for row in record["strategies"])
    assert [row["name"] for row in record["longest"]] == ["baseline", "checkpoint"]
    assert 1 <= len(record["advice"]) <= 3


def test_estimate_prints_tables_and_advice_for_people(app):
    output = run(app, "estimate", "--preset", "tiny", "--strategies", "baseline,checkpoint", "--ladder", "384").stdout
    for text in ("predicted peaks", "peak of each phase", "what the peak is made of", "G1 predicted", "saves most",
                 "nothing was timed"):
        assert text in output


def test_estimate_of_the_cpu_reserves_nothing(app):
    record = json.loads(run(app, "estimate", "--preset", "tiny", "--device", "cpu", "--strategies", "baseline",
                            "--json").stdout)
    assert record["strategies"][0]["peak_reserved_bytes"] is None
    assert record["assumptions"]["memory_source"].startswith("live tensors")


def test_estimate_refuses_what_it_does_not_know(app):
    with pytest.raises(UnknownNameError, match="device_memory: must be a size"):
        run(app, "estimate", "--preset", "tiny", "--device-memory", "lots")
    with pytest.raises(InputError, match="optimizer"):
        run(app, "estimate", "--preset", "tiny", "--optimizer", "adam")
    with pytest.raises(InputError, match="ladder: must be whole numbers"):
        run(app, "estimate", "--preset", "tiny", "--strategies", "baseline", "--ladder", "1024;1536")


def write_record(folder, peaks_mb):
    workload = load_experiment("tiny").workload
    record = {"run_label": "mine", "run_mode": "cpu_rehearsal", "config": workload.identity(),
              "candidates": [{"name": name, "status": "ok", "peak_memory_mb": peak, "runs": []}
                             for name, peak in peaks_mb.items()]}
    path = folder / "76_cpu_rehearsal_memory_mine.json"
    path.write_text(json.dumps(record))
    return path


def test_compare_prints_draws_and_leaves_the_record_alone(app, tmp_path):
    path = write_record(tmp_path, {"baseline": 33.24, "checkpoint": 23.79})
    content = path.read_bytes()
    output = run(app, "compare", str(path), "--plots", str(tmp_path / "figures")).stdout
    assert "plausible" in output
    assert "mine_predicted.png" in output.replace("\n", "")
    assert path.read_bytes() == content
    result = json.loads(run(app, "compare", str(path), "--json").stdout)
    assert [row["verdict"] for row in result["rows"]] == ["plausible", "plausible"]
    assert abs(result["rows"][0]["difference_pct"]) < 0.1


def test_advice_on_a_record_speaks_of_the_measured_peaks(tmp_path):
    path = write_record(tmp_path, {"baseline": 33.24, "checkpoint": 23.79})
    first, *rest = advise_record(json.loads(path.read_text()))
    assert first == "Backward sets the peak of baseline (33.2 MiB), the optimizer step that of checkpoint (23.8 MiB)."
    assert rest[-1].startswith("As it stands checkpoint saves most: 9.4 MiB, 28%")
