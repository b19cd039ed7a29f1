"""The only place where bytes become MiB.

`MB` in a public record key means bytes / 2**20, which is MiB. People always read "MiB".
"""

from __future__ import annotations

import re

from memstrat.errors import InputError

KIB, MIB, GIB = 2**10, 2**20, 2**30
_FACTORS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def bytes_to_mib(num_bytes: float) -> float:
    """Bytes as MiB, unrounded (2**20 bytes each)."""
    return num_bytes / MIB


def mib_to_bytes(mib: float) -> int:
    """MiB as whole bytes, rounded to nearest."""
    return round(mib * MIB)


def format_mib(mib: float | None, digits: int = 1) -> str:
    """A figure already in MiB for people: `9,782.7 MiB`, or `-` where there is none."""
    return "-" if mib is None else f"{mib:,.{digits}f} MiB"


def format_bytes(num_bytes: float | None, digits: int = 1) -> str:
    """Bytes for people, always in MiB so that columns compare."""
    return "-" if num_bytes is None else format_mib(bytes_to_mib(num_bytes), digits)


def parse_bytes(text: str, field: str = "device_memory") -> int:
    """`12GiB`, `12227 MiB`, `16GB` (decimal) or plain bytes, as bytes.

    Raises:
        InputError: if the text is no positive size.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    factor = _FACTORS.get(match.group(2).upper()) if match else None
    if not match or factor is None or float(match.group(1)) <= 0:
        raise InputError(f"{field}: must be a positive size such as 12GiB or 12227MiB, got {text!r}. "
                         "Give a number with B, KiB, MiB or GiB (KB, MB, GB are powers of 1000).")
    return round(float(match.group(1)) * factor)
