from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from memstrat import processes, runner, strategies
from memstrat.journal import Journal
from memstrat.records import Run
from memstrat.runner import Runner, interleave, run_all
from memstrat.workload import CORE_STRATEGIES, Workload

HEADER = {"label": "a1"}


def make_workload(**overrides) -> Workload:
    return Workload(**{"model_id": "memstrat/tiny-qwen2", "seq_len": 64} | overrides)


class FakeRunner(Runner):
    """Measures in this process, without loading anything."""

    def run(self, spec, report=None) -> Run:
        return runner.resolve(self.target)(spec, report or (lambda *progress: None))


def test_interleave_turns_every_second_block_round():
    assert interleave("ABCD", 3) == [("A", 0), ("B", 0), ("C", 0), ("D", 0), ("D", 1), ("C", 1), ("B", 1), ("A", 1),
                                     ("A", 2), ("B", 2), ("C", 2), ("D", 2)]


def test_run_measures_in_a_fresh_process():
    with Runner("cpu", num_threads=1, target="fakes:measure") as measuring:
        spec = measuring.spec(make_workload(), "offload", 2)
        steps = []
        run = measuring.run(spec, lambda *step: steps.append(step))
    assert steps == [("warmup", 1, 2), ("timed", 2, 2)]
    assert (run.name, run.repeat, run.seq_len, run.optimizer, run.status, run.step_time_ms) == (
        "offload", 2, 64, "AdamW", "ok", 2.0)
    assert run.startup_s > 0 and run.wall_s >= run.startup_s and run.load_average >= 0


@pytest.mark.parametrize(("repeat", "status", "reason", "last_line"), [
    (0, "failed", "ValueError: two lines", "lines"),
    (1, "oom", "MemoryError: no more of it", "MemoryError: no more of it"),
    (2, "failed", "SystemExit: the model's code left", "SystemExit: the model's code left"),
    (3, "failed", "killed by signal 6 (SIGABRT)", None),
    (4, "failed", "killed by signal 9 (SIGKILL); often the system ran out of memory", None),
])
def test_a_failing_child_is_a_row(repeat, status, reason, last_line):
    measuring = Runner("cpu", num_threads=1, target="fakes:measure_badly")
    run = measuring.run(measuring.spec(make_workload(repeats=5), "hybrid", repeat))
    assert (run.name, run.repeat, run.seq_len, run.optimizer, run.status, run.reason, run.num_threads) == (
        "hybrid", repeat, 64, "AdamW", status, reason, 1)
    assert run.step_time_ms is None and run.execution_path_verified is None
    assert run.startup_s > 0 and run.wall_s > 0 and run.load_average is not None
    if last_line is not None:
        assert run.traceback.startswith("Traceback (most recent call last):")
        assert run.traceback.rstrip().splitlines()[-1] == last_line
        assert str(Path(__file__).parent) not in run.traceback


def test_a_target_that_is_not_there_is_a_row():
    measuring = Runner("cpu", target="fakes:no_such_function")
    run = measuring.run(measuring.spec(make_workload(), "baseline", 0))
    assert (run.status, run.reason) == ("failed", "AttributeError: module 'fakes' has no attribute 'no_such_function'")


def test_a_strategy_of_ones_own_travels_with_the_spec(monkeypatch):
    monkeypatch.setattr(strategies, "_registry", dict(strategies._registry))
    monkeypatch.setattr("memstrat.workload._strategy_names", dict.fromkeys(CORE_STRATEGIES))

    class Own(strategies.Baseline):
        name = "own"

    strategies.register(Own())
    workload = make_workload(strategies=("baseline", "own"))
    assert Runner("cpu").spec(workload, "baseline", 0).strategy_pickle is None
    assert Runner("cpu").spec(workload, "own", 0).strategy_pickle is not None


def test_the_child_measures_with_the_threads_asked_for():
    with Runner("cpu", num_threads=1) as measuring:
        run = measuring.run(measuring.spec(make_workload(seq_len=16, iters=1, warmup=1), "baseline", 0))
    assert (run.status, run.num_threads, run.memory_source) == ("ok", 1, "tensor_accounting")


def test_run_all_measures_interleaved_and_writes_each_run_down(tmp_path):
    journal = Journal(tmp_path / "j.jsonl", HEADER)
    runs = run_all(FakeRunner("cpu", target="fakes:measure"), make_workload(repeats=2), journal)
    order = [("baseline", 0), ("checkpoint", 0), ("offload", 0), ("hybrid", 0),
             ("hybrid", 1), ("offload", 1), ("checkpoint", 1), ("baseline", 1)]
    assert [(run.name, run.repeat) for run in runs] == order
    assert [(run.name, run.repeat) for run in Journal(journal.path, HEADER).runs] == order


def test_run_all_leaves_out_what_the_journal_has(tmp_path, monkeypatch):
    log = tmp_path / "log"
    monkeypatch.setenv("MEMSTRAT_TEST_LOG", str(log))
    journal, workload = Journal(tmp_path / "j.jsonl", HEADER), make_workload(repeats=1)
    known = Run(name="offload", repeat=0, seq_len=64, optimizer="AdamW", status="oom", reason="as it was")
    journal.add(known)
    runs = run_all(FakeRunner("cpu", target="fakes:measure_and_log"), workload, journal)
    assert log.read_text().splitlines() == ["baseline 0", "checkpoint 0", "hybrid 0"]
    assert [run.name for run in runs] == list(CORE_STRATEGIES)
    assert runs[2] == known


def test_run_all_measures_a_known_run_again_at_another_length(tmp_path):
    journal = Journal(tmp_path / "j.jsonl", HEADER)
    measuring = FakeRunner("cpu", target="fakes:measure")
    run_all(measuring, make_workload(repeats=1, strategies=("baseline",)), journal)
    run_all(measuring, make_workload(repeats=1, strategies=("baseline",), seq_len=96), journal)
    assert [run.seq_len for run in journal.runs] == [64, 96]


def test_run_all_reports_steps_and_runs(tmp_path):
    seen = []
    journal = Journal(tmp_path / "j.jsonl", HEADER)
    workload = make_workload(repeats=1, strategies=("baseline", "hybrid"))
    journal.add(Run(name="baseline", repeat=0, seq_len=64, optimizer="AdamW", status="ok"))
    run_all(FakeRunner("cpu", target="fakes:measure"), workload, journal, seen.append)
    assert [(at.strategy, at.num_done, at.num_runs, at.step_kind, at.reused) for at in seen] == [
        ("baseline", 1, 2, "", True), ("hybrid", 1, 2, "", False), ("hybrid", 1.5, 2, "warmup", False),
        ("hybrid", 2, 2, "timed", False), ("hybrid", 2, 2, "", False)]


def test_an_interrupt_records_no_row(tmp_path):
    journal = Journal(tmp_path / "j.jsonl", HEADER)

    def interrupt(progress):
        if progress.strategy == "checkpoint" and progress.step_kind:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(FakeRunner("cpu", target="fakes:measure"), make_workload(repeats=1), journal, interrupt)
    assert [run.name for run in Journal(journal.path, HEADER).runs] == ["baseline"]


def run_until_killed(runner_type: str, path: str, repeats: int) -> None:
    """What the processes of the next test do: a stage's measuring, from the start or where it stopped."""
    measuring = {"here": FakeRunner, "fresh": Runner}[runner_type]("cpu", target="fakes:measure_and_log")
    run_all(measuring, make_workload(repeats=repeats), Journal(Path(path), HEADER))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize(("runner_type", "num_kills"), [
    ("here", 3), pytest.param("here", 20, marks=pytest.mark.slow), pytest.param("fresh", 4, marks=pytest.mark.slow)])
def test_no_finished_run_is_measured_twice_or_lost_by_kills(tmp_path, monkeypatch, runner_type, num_kills):
    path, log, repeats = tmp_path / "j.jsonl", tmp_path / "log", 3 * num_kills
    monkeypatch.setenv("MEMSTRAT_TEST_LOG", str(log))
    log.touch()
    rng, finished, num_killed = random.Random(0), [], 0
    context = multiprocessing.get_context("fork")
    while len(finished) < 4 * repeats:
        process = context.Process(target=run_until_killed, args=(runner_type, str(path), repeats))
        num_begun = log.read_text().count("\n")
        process.start()
        while log.read_text().count("\n") == num_begun and process.is_alive():
            time.sleep(0.001)
        if num_killed < num_kills:
            time.sleep(rng.uniform(0, 0.2))
            os.kill(process.pid, signal.SIGKILL)
            num_killed += 1
        process.join()
        begun = log.read_text().splitlines()
        assert not {f"{name} {repeat}" for name, repeat in finished} & set(begun[num_begun:])
        runs = [(run.name, run.repeat) for run in Journal(path, HEADER).runs]
        assert runs[:len(finished)] == finished and len(set(runs)) == len(runs)
        finished = runs
    assert num_killed == num_kills
    assert finished == interleave(CORE_STRATEGIES, repeats)


def test_the_runner_leaves_the_server_for_the_next_one():
    with Runner("cpu", target="fakes:measure"):
        before = processes.call("fakes:look_around")["server"]
    assert processes.call("fakes:look_around")["server"] == before
