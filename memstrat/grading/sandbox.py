"""Limits that a process puts on itself before it runs a learner's code. Standard library only.

What the kernel offers is used, and what it lacks is left out and named in the returned list:
resource limits (POSIX), Landlock (no writing outside one folder, no reading of listed files, no TCP,
no signals to others), a network namespace of its own, and a seccomp filter against new processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable

CLONE_NEWUSER, CLONE_NEWNET, CLONE_THREAD = 0x10000000, 0x40000000, 0x00010000
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 4, 22, 38
# Landlock: write, remove_dir, remove_file, make_*, then refer (ABI 2) and truncate (ABI 3)
WRITE_FILE, READ_FILE, READ_DIR = 1 << 1, 1 << 2, 1 << 3
READ_RIGHTS = READ_FILE | READ_DIR
WRITE_RIGHTS = WRITE_FILE | sum(1 << bit for bit in (4, 5, 6, 7, 8, 9, 10, 11, 12))
REFER, TRUNCATE = 1 << 13, 1 << 14
TCP_RIGHTS, SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
SECCOMP_ARCHES = {  # audit architecture, clone, other calls that make a process
    "x86_64": (0xC000003E, 56, (57, 58)),
    "aarch64": (0xC00000B7, 220, ()),
}
EAGAIN, ENOSYS, EPERM = 11, 38, 1


def _libc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def set_limits(memory_bytes: int, cpu_s: int, file_bytes: int, num_files: int = 64) -> None:
    """Limits on what may still be allocated, CPU time, file size and open files.

    Args:
        memory_bytes: address space on top of what the process has now.
    """
    wanted = [(resource.RLIMIT_CPU, cpu_s), (resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_CORE, 0),
              (resource.RLIMIT_NOFILE, num_files), (resource.RLIMIT_AS, _address_space() + memory_bytes)]
    for which, value in wanted:
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS refuses some of them
            resource.setrlimit(which, (value, value))


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def leave_network() -> bool:
    """A network namespace with no way out. False where the system does not allow one."""
    libc = _libc()
    return libc is not None and libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0


def hide_from_children() -> None:
    """No other process of this user may read this one's memory or descriptors."""
    libc = _libc()
    if libc is not None:
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def readable_except(denied: Iterable[str]) -> list[tuple[str, bool]]:
    """Paths whose union is the whole file system without `denied`: (path, whether all below it is meant)."""
    hidden = sorted({os.path.realpath(path) for path in denied})
    found: list[tuple[str, bool]] = []

    def walk(folder: str) -> None:
        below = folder.rstrip("/") + "/"
        if not any(path.startswith(below) for path in hidden):
            found.append((folder, True))
            return
        found.append((folder, False))  # its names may be listed
        for entry in os.scandir(folder):
            if entry.path in hidden or entry.is_symlink():
                continue
            if entry.is_dir():
                walk(entry.path)
            else:
                found.append((entry.path, True))

    walk("/")
    return found


def confine_files(writable: Iterable[str], readable: Iterable[tuple[str, bool]] = (), allow_tcp: bool = False) -> bool:
    """Landlock: writing only below `writable`, and reading only what `readable` lists (all, if it is empty).

    Returns:
        False where the kernel has no Landlock; then nothing is confined.
    """
    libc = _libc()
    if libc is None:
        return False
    abi = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    reads = READ_RIGHTS if readable else 0
    writes = WRITE_RIGHTS | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    attributes = struct.pack("QQQ", reads | writes, 0 if allow_tcp else TCP_RIGHTS, SCOPES)
    attributes = attributes[:24 if abi >= 6 else 16 if abi >= 4 else 8]
    ruleset = libc.syscall(444, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    rules = [(folder, reads | writes) for folder in writable] + [("/dev/null", writes & (WRITE_FILE | TRUNCATE))]
    rules += [(path, reads if below else READ_DIR) for path, below in readable]
    for path, allowed in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # gone since it was listed
        if not os.path.isdir(path):
            allowed &= ~(READ_DIR | (writes & ~(WRITE_FILE | TRUNCATE)))
        libc.syscall(445, ruleset, 1, struct.pack("=Qi", allowed, descriptor), 0)
        os.close(descriptor)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    confined = libc.syscall(446, ruleset, 0) == 0
    os.close(ruleset)
    return bool(confined)


def forbid_processes() -> bool:
    """Seccomp: threads may start, processes may not. False where only a resource limit could be set."""
    libc = _libc()
    if libc is None or platform.machine() not in SECCOMP_ARCHES:
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return False
    arch, clone, others = SECCOMP_ARCHES[platform.machine()]
    allow, refuse = 0x7FFF0000, 0x00050000

    def load(offset: int) -> tuple[int, int, int, int]:
        return (0x20, 0, 0, offset)

    def unless_equal(value: int, skip: int) -> tuple[int, int, int, int]:
        return (0x15, 0, skip, value)

    program = [load(4), unless_equal(arch, 1), (0x05, 0, 0, 1), (0x06, 0, 0, allow), load(0),
               (0x35, 0, 1, 0x40000000), (0x06, 0, 0, refuse | EPERM)]  # the x32 calls
    for number in others:
        program += [unless_equal(number, 1), (0x06, 0, 0, refuse | EAGAIN)]
    program += [unless_equal(435, 1), (0x06, 0, 0, refuse | ENOSYS),  # clone3: the C library falls back to clone
                unless_equal(clone, 3), load(16), (0x45, 1, 0, CLONE_THREAD), (0x06, 0, 0, refuse | EAGAIN),
                (0x06, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0) == 0


def main(arguments: list[str]) -> None:
    """Confine this process to a folder, then become another program: FOLDER MEMORY_MIB CPU_S FILE_MIB COMMAND..."""
    folder, memory_mib, cpu_s, file_mib, *command = arguments
    confine_files([folder], allow_tcp=leave_network())  # an empty network namespace is fence enough
    set_limits(int(memory_mib) << 20, int(cpu_s), int(file_mib) << 20, num_files=1024)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
