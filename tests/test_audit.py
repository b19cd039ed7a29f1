"""The audit: a real record holds, an edited one does not, an impossible one is listed."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from memstrat.errors import InputError
from memstrat.grading.audit import audit
from memstrat.grading.plausibility import implausible_figures, parameter_mib
from memstrat.records import content_sha256

REFERENCE = Path(__file__).parents[1] / "memstrat" / "reference"
NAMES = {"g0": "76_cpu_rehearsal_memory_{}.json", "g1": "76_cpu_rehearsal_memory_boundary_{}.json",
         "decision": "76_memory_strategy_decision_{}.json"}


@pytest.fixture
def records(tmp_path):
    """A folder with the three bundled records, and a function that changes one of them."""
    for kind, name in NAMES.items():
        text = (REFERENCE / f"tiny_{kind}.json").read_bytes()
        (tmp_path / name.format(json.loads(text)["run_label"])).write_bytes(text)

    def change(kind, edit, rehash=True):
        path = next(tmp_path.glob(NAMES[kind].format("tiny*")))
        content = json.loads(path.read_text())
        edit(content)
        if rehash:
            content["content_sha256"] = content_sha256(content)
        path.write_text(json.dumps(content))
        return audit(tmp_path)

    return tmp_path, change


def test_real_records_hold_in_every_derived_number(records):
    found = audit(records[0])
    assert len(found.files) == 3 and found.errors == []
    assert all("is not among the files" in remark.what for remark in found.remarks)


def _first_run(record):
    return record["candidates"][0]["runs"][0]


@pytest.mark.parametrize(("edit", "place"), [
    (lambda g0: g0["candidates"][1].update(peak_memory_mb=1.0), "candidates.checkpoint.peak_memory_mb"),
    (lambda g0: _first_run(g0).update(samples_per_s=999.0), "samples_per_s: must be"),
    (lambda g0: _first_run(g0).update(step_time_ms=1.0), "step_time_ms: must be"),
    (lambda g0: g0["summary"].update(memory_saving_mb=5000.0), "summary.memory_saving_mb"),
    (lambda g0: g0["candidates"][1].update(status="ok", successful_runs=9), "successful_runs"),
    (lambda g0: g0["candidates"][2]["runs"][0]["path"].update(num_unpacked=0), "execution_path_verified"),
    (lambda g0: g0.update(run_label="another"), "run_label"),
])
def test_edited_figure_is_an_error_even_with_a_fresh_hash(records, edit, place):
    texts = [remark.what for remark in records[1]("g0", edit).errors]
    assert any(place in text for text in texts), texts


def test_edit_breaks_the_content_hash_and_the_chain(records):
    found = records[1]("g0", lambda g0: g0["provenance"].update(note="x"))
    assert any("source_g0: SHA-256" in remark.what for remark in found.errors)
    found = records[1]("g1", lambda g1: g1.update(status="completed", reason="mine"), rehash=False)
    assert any("content_sha256" in remark.what for remark in found.errors)


def test_decision_is_recomputed(records):
    found = records[1]("decision", lambda record: record["decision"].update(decision="accept", reason="because"))
    assert any(remark.what.startswith("decision.reason") for remark in found.errors)


def test_truncated_record_is_an_error_and_not_a_crash(records):
    path = next(records[0].glob("76_cpu_rehearsal_memory_tiny*"))
    path.write_text(path.read_text()[:500])
    assert any(remark.file == path.name for remark in audit(records[0]).errors)


def test_parameters_of_the_reference_model_are_counted_from_its_config():
    assert parameter_mib({"model_id": "Qwen/Qwen2.5-0.5B-Instruct"}) == pytest.approx(494_032_768 * 4 / 2**20)
    assert parameter_mib({"model_id": "some/other"}) is None


def test_impossible_figures_are_findings():
    record = json.loads((REFERENCE / "tiny_g0.json").read_text())
    assert implausible_figures(record) == []
    low = copy.deepcopy(record)
    _first_run(low)["peak_memory_mb"] = 0.5
    assert "below the parameters' own" in implausible_figures(low)[0]
    copied = copy.deepcopy(record)
    for candidate in copied["candidates"]:
        candidate["runs"][1]["step_times_ms"] = candidate["runs"][0]["step_times_ms"]
    assert sum("identical to those of" in doubt for doubt in implausible_figures(copied)) >= 4
    constant = copy.deepcopy(record)
    _first_run(constant)["step_times_ms"] = [10.0] * 5
    assert any("all 5 raw step times are identical" in doubt for doubt in implausible_figures(constant))


def test_peak_far_from_the_estimate_is_a_finding():
    record = json.loads((REFERENCE / "tiny_g1.json").read_text())
    check = next(check for check in record["admission"]["checks"] if check["status"] == "admitted")
    check["estimated_peak_mb"] = 1.0
    assert any("far from the estimate" in doubt for doubt in implausible_figures(record))


@pytest.mark.slow
def test_predictor_doubts_a_changed_peak_and_not_a_real_one(records):
    assert not any("predicted" in remark.what for remark in audit(records[0], predict=True).remarks)
    records[1]("g0", lambda g0: g0["candidates"][0].update(peak_memory_mb=99.0))
    found = audit(records[0], predict=True)
    assert sum("far from the predicted" in remark.what for remark in found.remarks) == 1


def test_refuses_a_folder_without_records(tmp_path):
    with pytest.raises(InputError, match="must hold records"):
        audit(tmp_path)
