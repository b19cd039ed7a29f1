"""What the machine is and whether it can run a workload: device, memory, packages, load.

Facts of a GPU are read in a fresh child: asking for them here would hold a CUDA context, some
hundred MiB of the device, for as long as this process lives.

Not covered: whether a model can be had (`models`), where records go (`storage`).
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

import memstrat
from memstrat import processes
from memstrat.errors import DeviceError, ProcessError, UnknownNameError
from memstrat.experiment import Experiment
from memstrat.host_memory import available_ram_bytes, total_ram_bytes
from memstrat.units import bytes_to_mib, format_mib
from memstrat.workload import Workload, short_hash

DEVICES = ("auto", "cpu", "cuda")
PACKAGES = ("torch", "transformers", "numpy", "tokenizers")
SUPPORTED = {"python": ((3, 11), (3, 14)), "torch": ((2, 6), None), "transformers": ((4, 56), (6, 0))}
BF16_CAPABILITY = (8, 0)  # torch.cuda.is_bf16_supported() also says yes where bf16 is only emulated
HARDWARE_ID_KEYS = ("device", "total_memory_mb", "capability", "torch")


def resolve_device(device: str = "auto") -> str:
    """`cpu` or `cuda`, whichever `device` means here. Creates no CUDA context.

    Raises:
        UnknownNameError: another word than auto, cpu or cuda.
        DeviceError: CUDA asked for and absent.
    """
    if device not in DEVICES:
        raise UnknownNameError(f"device: must be one of {', '.join(DEVICES)}, got {device!r}. Choose one of them.")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise DeviceError(f"device: must be there, got 'cuda' and torch {torch.__version__} ({build}) sees no GPU. "
                          "Rehearse with --device cpu, or install a CUDA build of torch on a machine with a GPU.")
    return "cuda"


def hardware_facts(device: str) -> dict[str, Any]:
    """What tells one kind of machine from another: `device` (its name), `total_memory_mb` (MiB), `capability`
    ("x.y", None on a CPU) and `torch` (version).

    On a CPU the memory is the RAM this process may use: the machine's, or its container's limit.
    """
    if device == "cuda":
        return dict(_cuda_facts())
    return {"device": _cpu_name(), "total_memory_mb": bytes_to_mib(total_ram_bytes()), "capability": None,
            "torch": str(torch.__version__)}


def hardware_id(facts: dict[str, Any]) -> str:
    """16 hex digits; equal for equal device name, total memory, capability and torch version."""
    return short_hash({key: facts[key] for key in HARDWARE_ID_KEYS})


def package_versions() -> dict[str, str | None]:
    """Versions of Python, of the packages a measurement depends on, and of CUDA (None without)."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions | {"torch": str(torch.__version__), "cuda": torch.version.cuda or torch.version.hip}


def provenance() -> dict[str, Any]:
    """When, with what and under which load a record was made. Holds no path, host or user name."""
    return {
        "utc": datetime.now(UTC).isoformat(timespec="seconds"), "platform": platform.platform(),
        "memstrat": memstrat.__version__, "packages": package_versions(), **_git_state(),
        "num_threads": torch.get_num_threads(), "num_cores": num_cores(), "load_average": list(os.getloadavg()),
    }


def free_memory_mb(device: str) -> float:
    """MiB that a new process could allocate on the device now.

    On CUDA what the driver reports to a fresh process, whose own context is paid already; on a CPU
    the available RAM, or what is left of the container's limit if that is less.
    """
    if device == "cuda":
        return bytes_to_mib(_ask_gpu("_read_free_cuda_bytes"))
    return bytes_to_mib(available_ram_bytes())


def check_dtype(workload: Workload, facts: dict[str, Any]) -> None:
    """Refuse bf16 on a GPU that only emulates it. A CPU may rehearse it.

    Raises:
        DeviceError: with the way out.
    """
    if workload.dtype_mode != "bf16" or facts["capability"] is None:
        return
    if tuple(int(part) for part in facts["capability"].split(".")) < BF16_CAPABILITY:
        raise DeviceError(f"dtype_mode: must be fp32 on {facts['device']}, got 'bf16', which needs compute capability "
                          f"8.0 and this GPU has {facts['capability']}. Add --dtype-mode fp32.")


def num_cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def preflight(experiment: Experiment, device: str = "auto") -> dict[str, Any]:
    """Can this machine run the experiment? Loads no model and never raises for what it finds.

    Returns:
        `status` (`ready` or `blocked`), `ready`, `reasons` (why blocked), `next_actions` (what mends
        it), `warnings` (what makes results worse), and the facts: `device`, `hardware`,
        `hardware_id`, `free_memory_mb` (MiB), `packages`, `num_threads`, `num_cores`, `load_average`.
    """
    report: dict[str, Any] = {
        "packages": package_versions(), "num_threads": torch.get_num_threads(), "num_cores": num_cores(),
        "load_average": os.getloadavg()[0], "device": None, "hardware": None, "hardware_id": None,
        "free_memory_mb": None,
    }
    problems = _package_problems(report["packages"])
    try:
        report["device"] = resolve_device(device)
        report["hardware"] = hardware_facts(report["device"])
        report["hardware_id"] = hardware_id(report["hardware"])
        report["free_memory_mb"] = free_memory_mb(report["device"])
        check_dtype(experiment.workload, report["hardware"])
    except (DeviceError, UnknownNameError) as error:
        problems.append(str(error))
    parts = [problem.partition(". ") for problem in problems]  # the rule with what was got, then what to do next
    return {"status": "blocked" if problems else "ready", "ready": not problems,
            "reasons": [f"{reason}." for reason, _, _ in parts],
            "next_actions": list(dict.fromkeys(advice for _, _, advice in parts)),
            "warnings": _warnings(experiment, report), **report}


def _warnings(experiment: Experiment, report: dict[str, Any]) -> list[str]:
    warnings = []
    load, cores = report["load_average"], report["num_cores"]
    if load > cores:
        warnings.append(f"load average {load:.1f} exceeds {cores} cores: step times will not be trustworthy. "
                        "Stop other work and measure again.")
    free, cap = report["free_memory_mb"], experiment.budget and experiment.budget.memory_cap_mb
    if free is not None and cap is not None and free < cap:
        warnings.append(f"free memory {format_mib(free)} is below memory_cap_mb {format_mib(cap)}: runs may end out "
                        "of memory before they reach the cap. Free some memory.")
    return warnings


def _package_problems(versions: dict[str, str | None]) -> list[str]:
    problems = []
    for name, (lowest, end) in SUPPORTED.items():
        found = tuple(int(part) for part in re.findall(r"\d+", versions[name] or "")[:2])
        if not found or found < lowest or (end is not None and found >= end):
            rule = f"at least {'.'.join(map(str, lowest))}" + (f" and below {'.'.join(map(str, end))}" if end else "")
            problems.append(f"{name}: must be {rule}, got {versions[name]}. Install a version in that range.")
    return problems


@cache
def _cuda_facts() -> dict[str, Any]:
    return _ask_gpu("_read_cuda_facts")


def _ask_gpu(function: str) -> Any:
    """The result of one of this module's functions in a fresh child."""
    try:
        return processes.call(f"{__name__}:{function}")
    except ProcessError as error:
        raise DeviceError(f"device: must answer, got: {error.reason}. "
                          "Check the GPU's driver, or rehearse with --device cpu.") from error


def _read_cuda_facts() -> dict[str, Any]:
    """`hardware_facts` of the current GPU; makes a context, so it runs in a child."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {"device": properties.name, "total_memory_mb": bytes_to_mib(properties.total_memory),
            "capability": f"{properties.major}.{properties.minor}", "torch": str(torch.__version__)}


def _read_free_cuda_bytes() -> int:
    free, _ = torch.cuda.mem_get_info()
    return free


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match.group(1).strip() if match else platform.processor() or platform.machine()


def _git_state() -> dict[str, Any]:
    """`git_commit` and `git_dirty` of the checkout this package lies in; None without one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {"git_commit": None, "git_dirty": None}
    return {"git_commit": found.removesuffix("-dirty"), "git_dirty": found.endswith("-dirty")}
