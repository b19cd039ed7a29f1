from __future__ import annotations

import pytest

from memstrat.errors import InputError
from memstrat.units import bytes_to_mib, format_bytes, format_mib, mib_to_bytes, parse_bytes


def test_mib_is_two_to_the_twentieth():
    assert bytes_to_mib(1_048_576) == 1.0
    assert mib_to_bytes(12_227) == 12_820_938_752


def test_format_says_mib():
    assert format_mib(9782.74) == "9,782.7 MiB"
    assert format_bytes(1_976_131_072, 2) == "1,884.59 MiB"
    assert format_mib(None) == "-"


@pytest.mark.parametrize(("text", "num_bytes"), [
    ("12GiB", 12_884_901_888), ("12227 MiB", 12_820_938_752), ("16GB", 16_000_000_000), ("512", 512), ("0.5KiB", 512),
])
def test_parse_bytes_tells_binary_from_decimal(text, num_bytes):
    assert parse_bytes(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "12 GiB of it", "12Gi"])
def test_parse_bytes_refuses_what_is_no_size(text):
    with pytest.raises(InputError, match="device_memory: must be a positive size"):
        parse_bytes(text)
