"""g0 killed with kill -9 at random moments and started again."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter

import pytest

from memstrat import stages
from memstrat.records import G0Record
from memstrat.storage import ResultsFolder, read_record
from tests.fake_measure import InProcess, plan_stages


class SlowInProcess(InProcess):
    """Planned figures, right here, at a pace that leaves time to be killed: about two seconds a g0."""

    def run(self, spec, report=None):
        run = super().run(spec, report)
        time.sleep(0.1)
        return run


def run_g0(label: str) -> None:
    stages.g0(label, preset="tiny", device="cpu", say=lambda _: None)


@pytest.mark.parametrize("num_kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_g0_killed_at_random_moments_loses_and_repeats_no_finished_run(num_kills, tmp_path, monkeypatch):
    plan_stages(monkeypatch, SlowInProcess)
    log, results = tmp_path / "log", ResultsFolder(tmp_path / "benchmarks" / "results")
    monkeypatch.setenv("MEMSTRAT_RESULTS_DIR", str(results.path))
    monkeypatch.setenv("MEMSTRAT_TEST_LOG", str(log))
    path = results.file("g0", "a1", "cpu_rehearsal")
    processes = multiprocessing.get_context("fork")  # a copy of this process: nothing to import again
    random_moments, num_killed = random.Random(num_kills), 0
    while num_killed < num_kills and not path.exists():
        process = processes.Process(target=run_g0, args=("a1",))
        process.start()
        process.join(random_moments.uniform(0.05, 3.0 / num_kills))
        process.kill()
        process.join()
        num_killed += process.exitcode == -9
        for record in results.path.glob("*.json"):  # whole or not at all
            assert record.read_text().endswith("}\n")
    run_g0("a1")

    record = read_record(path, G0Record)
    assert [(row.name, row.successful_runs) for row in record.candidates] == [
        ("baseline", 3), ("checkpoint", 3), ("offload", 3), ("hybrid", 3)]
    begun = Counter(log.read_text().splitlines())
    assert len(begun) == 12  # a baseline's runs and g0's are alike in the log
    # A run may begin again only if the kill came before its row was written: once a kill at most.
    assert 15 <= sum(begun.values()) <= 15 + num_killed
    assert not list(results.path.glob(".*.tmp")) and not list((results.path / ".memstrat").glob("*.jsonl"))
