from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest

from memstrat import processes
from memstrat.errors import InputError, NotReadyError, ProcessError
from memstrat.processes import ForkServer, describe_exit, strip_folders

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def server():
    """A server that loads nothing, and so starts at once."""
    server = ForkServer(preload=())
    yield server
    server.stop()


def write_script(text: str) -> list[str]:
    """A command that runs a script which no file holds and no main guard protects."""
    # A shell's background job ignores Ctrl-C, and so would what it starts.
    head = ("import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            f"sys.path[:0] = [{str(TESTS)!r}, {str(TESTS.parent)!r}]\n")
    return [sys.executable, "-c", head + textwrap.dedent(text)]


def wait_until(condition, timeout_s: float = 10.0) -> float:
    """Seconds until the condition held."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, "waited in vain"
        time.sleep(0.005)
    return time.monotonic() - began


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def read_pid(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def test_run_gives_every_job_a_fresh_process(server):
    first, second = server.run("fakes:look_around"), server.run("fakes:look_around")
    assert first.finished and second.finished
    assert len({os.getpid(), first.value["pid"], second.value["pid"], first.value["server"]}) == 4
    assert first.value["server"] == second.value["server"]


def test_run_tells_what_the_child_raised(server):
    outcome = server.run("fakes:fail", ValueError("of the child"))
    assert not outcome.finished
    assert isinstance(outcome.error, ValueError)
    lines = outcome.error_traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: of the child"
    assert any('File "fakes.py"' in line for line in lines)


@pytest.mark.parametrize(("how", "reason"), [
    ("abort", "killed by signal 6 (SIGABRT)"),
    ("kill", "killed by signal 9 (SIGKILL); often the system ran out of memory"),
    ("kill server", "killed by signal 9 (SIGKILL); often the system ran out of memory"),
    ("exit", "exited with code 3"),
])
def test_a_crash_is_told_and_the_next_run_is_clean(server, how, reason):
    outcome = server.run("fakes:crash", how)
    assert not outcome.finished and outcome.error_traceback is None
    assert outcome.exit_reason == reason
    assert outcome.output.startswith("the last words")
    assert server.run("fakes:add", 1, 2).value == 3


def test_a_crash_leaves_its_python_stack(server):
    assert 'File "fakes.py", line' in server.run("fakes:crash", "abort").output


def test_output_of_an_earlier_job_is_not_blamed_on_a_crash(server):
    server.run("fakes:make_noise")
    assert server.run("fakes:crash", "kill").output == "the last words"


def test_a_server_killed_between_jobs_is_replaced(server):
    pid = server.run("fakes:look_around").value["server"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: is_gone(pid))
    assert server.run("fakes:add", 1, 2).value == 3


def test_report_gets_what_the_child_passes(server):
    seen = []
    assert server.run("fakes:count_up", report=seen.append).value == "done"
    assert seen == [0, 1, 2]


def test_an_error_of_report_ends_the_child(server, tmp_path):
    def refuse(number):
        raise KeyError(number)

    pid = server.run("fakes:look_around").value["server"]
    with pytest.raises(KeyError):
        server.run("fakes:count_up", report=refuse)
    assert is_gone(pid)
    assert server.run("fakes:add", 1, 2).value == 3


def test_children_see_the_callers_folder_and_environment(server, tmp_path, monkeypatch):
    before = server.run("fakes:look_around").value
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEMSTRAT_TEST_WORD", "new")
    after = server.run("fakes:look_around").value
    assert after["server"] == before["server"]
    assert after["folder"] == str(tmp_path)
    assert after["environment"]["MEMSTRAT_TEST_WORD"] == "new"


def test_openmp_waits_passively_in_children_only(server, monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert server.run("fakes:look_around").value["environment"]["OMP_WAIT_POLICY"] == "passive"
    assert "OMP_WAIT_POLICY" not in os.environ


def test_a_setting_that_libraries_read_at_load_renews_the_server(server, monkeypatch):
    before = server.run("fakes:look_around").value
    monkeypatch.setenv("HF_HOME", "elsewhere")
    after = server.run("fakes:look_around").value
    assert before["server"] != after["server"]
    assert is_gone(before["server"])


def test_a_library_that_cannot_be_loaded_is_named():
    server = ForkServer(preload=("json", "no_such_library"))
    server.start()
    with pytest.raises(NotReadyError) as caught:
        server.run("fakes:add", 1, 2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "fork server: must load json, no_such_library, got:"
    assert lines[-2:] == ["ModuleNotFoundError: No module named 'no_such_library'",
                          "Mend the installation and run again."]


def test_the_shared_server_has_torch_loaded_and_starts_children_fast():
    first = processes.run("fakes:look_around")
    later = [processes.run("fakes:look_around") for _ in range(3)]
    assert first.torch_preloaded and all(outcome.torch_preloaded for outcome in later)
    assert {"torch", "transformers.modeling_utils", "memstrat.measure"} <= first.value["modules"]
    assert max(outcome.startup_s for outcome in later) < 0.5


def test_call_returns_the_value():
    assert processes.call("fakes:add", 1, 2) == 3


def test_call_raises_a_refusal_as_it_was():
    with pytest.raises(InputError, match="^seq_len: must be even$"):
        processes.call("fakes:fail", InputError("seq_len: must be even"))


def test_call_tells_a_foreign_error_in_one_line_with_the_traceback_as_a_note():
    with pytest.raises(ProcessError) as caught:
        processes.call("fakes:fail", KeyError("k"))
    assert str(caught.value) == "fakes:fail: must return from its fresh process, got: KeyError: 'k'. Run it again."
    assert caught.value.__notes__[0].startswith("Traceback")


@pytest.mark.parametrize(("code", "text"), [
    (0, "exited with code 0"), (1, "exited with code 1"), (-11, "killed by signal 11 (SIGSEGV)"),
    (-9, "killed by signal 9 (SIGKILL); often the system ran out of memory"), (-250, "killed by signal 250 (unknown)"),
])
def test_exit_codes_are_told_in_words(code, text):
    assert describe_exit(code) == text


def test_folders_are_stripped_from_a_traceback(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", "/", "/opt/lib", "/opt/lib/site-packages"])
    monkeypatch.setenv("HOME", "/home/ada")
    text = 'File "/opt/lib/site-packages/torch/nn.py", "/opt/lib/os.py", "/home/ada/model", 1/2'
    assert strip_folders(text) == 'File "torch/nn.py", "os.py", "~/model", 1/2'


@pytest.mark.parametrize("home", ["/", ""])
def test_a_home_at_the_root_is_nobodys_folder(monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    assert strip_folders("/data/model, 1/2, caf\udce9") == "/data/model, 1/2, caf?"


LONG_WORK = """
    from memstrat.processes import ForkServer
    ForkServer(preload=()).run("fakes:work_long", sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize(("number", "how"), [
    (signal.SIGKILL, "sleep"), (signal.SIGKILL, "library"), (signal.SIGTERM, "sleep"), (signal.SIGINT, "library")])
def test_a_child_is_gone_within_a_second_of_its_parents_death(tmp_path, number, how):
    path = tmp_path / "pid"
    with subprocess.Popen([*write_script(LONG_WORK), str(path), how], stderr=subprocess.DEVNULL) as parent:
        child = read_pid(path)
        server = psutil.Process(child).ppid()
        parent.send_signal(number)
        assert wait_until(lambda: is_gone(child) and is_gone(server), timeout_s=5) < 1
        assert parent.wait() == -number


def test_a_child_is_gone_although_a_forked_copy_of_its_parent_lives(tmp_path):
    path = tmp_path / "pid"
    script = """
        import os, time
        from memstrat import child
        child.PRELOAD = ()
        from memstrat import processes
        processes.call("fakes:add", 1, 2)
        if os.fork() == 0:
            assert processes.call("fakes:add", 1, 2) == 3
            print(os.getpid(), flush=True)
            time.sleep(60)
        processes.run("fakes:work_long", sys.argv[1], "sleep")
    """
    with subprocess.Popen([*write_script(script), str(path)], stdout=subprocess.PIPE, text=True) as parent:
        copy, child = int(parent.stdout.readline()), read_pid(path)
        try:
            parent.kill()
            assert wait_until(lambda: is_gone(child), timeout_s=5) < 1
            assert not is_gone(copy)
        finally:
            os.kill(copy, signal.SIGKILL)


@pytest.mark.parametrize("how", ["sleep", "library"])
def test_a_child_ends_with_its_server(tmp_path, server, how):
    path = tmp_path / "pid"
    thread = threading.Thread(target=server.run, args=("fakes:work_long", str(path), how))
    thread.start()
    child = read_pid(path)
    os.kill(psutil.Process(child).ppid(), signal.SIGKILL)
    assert wait_until(lambda: is_gone(child), timeout_s=5) < 1
    thread.join(timeout=5)
    assert not thread.is_alive()


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_script_without_a_main_guard_runs_once_and_stays_quiet(tmp_path, source):
    path = tmp_path / "script.py"
    path.write_text(write_script("""
        from memstrat.processes import ForkServer
        print("top level")
        print(ForkServer(preload=()).run("fakes:make_noise").value)
    """)[2], encoding="utf-8")
    with path.open() as file:
        done = subprocess.run([sys.executable, path if source == "file" else "-"], stdin=file, timeout=60,
                              capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "top level\nheard\n", "")


def test_a_fork_server_of_the_callers_own_is_no_hindrance():
    script = """
        import multiprocessing
        from operator import add
        from memstrat.processes import ForkServer
        if __name__ == "__main__":
            with multiprocessing.get_context("forkserver").Pool(1) as pool:
                print(pool.apply(add, (1, 1)), ForkServer(preload=("json",)).run("fakes:add", 1, 2).value)
    """
    done = subprocess.run(write_script(script), timeout=60, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("2 3\n", "")


@pytest.mark.slow
def test_a_notebook_kernel_runs_jobs():
    jupyter_client = pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    manager, client = jupyter_client.manager.start_new_kernel(cwd=str(TESTS))
    output = []
    try:
        code = (f"import sys; sys.path.insert(0, {str(TESTS.parent)!r})\nfrom memstrat.processes import call\n"
                "print(call('fakes:make_noise'), call('fakes:add', 1, 2))")
        reply = client.execute_interactive(
            code, timeout=60, output_hook=lambda message: output.append(message["content"].get("text")))
        assert reply["content"]["status"] == "ok"
        assert "".join(filter(None, output)) == "heard 3\n"
        server = psutil.Process(manager.provisioner.pid).children()
        assert len(server) == 1
        manager.provisioner.process.kill()
        assert wait_until(lambda: is_gone(server[0].pid)) < 1
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
