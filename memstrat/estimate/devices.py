"""What an estimate assumes of the device: memory, attention kernels, workspaces, rough speeds.

Memory is what the driver reports for a card of that name, in MiB. Speeds are the vendor's peak for
dense arithmetic and serve only the labelled time ratio. Does not detect the device at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

from memstrat.errors import UnknownNameError
from memstrat.units import MIB, parse_bytes

CONTEXT_BYTES = 450 * MIB
"""What the CUDA context and loaded kernels take beside the allocator. Assumed: it varies by driver and
card (about 300 to 600 MiB); `nvidia-smi` shows a process's total, `torch.cuda.memory_reserved` the rest."""
SCREEN_BYTES = 600 * MIB
"""What a desktop takes on a card that also drives a screen. Assumed; `nvidia-smi` shows yours."""
DEFAULT_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Device:
    """A GPU. `total_bytes` None means: no limit is asked about."""

    name: str
    total_bytes: int | None
    capability: tuple[int, int] = DEFAULT_CAPABILITY
    fp32_tflops: float = 20.0
    bf16_tflops: float = 80.0
    drives_screen: bool = False
    other_bytes: int | None = None

    @property
    def other_use_bytes(self) -> int:
        """Bytes that are not the allocator's to give: as told, else the context, and a screen where there is one."""
        if self.other_bytes is not None:
            return self.other_bytes
        return CONTEXT_BYTES + (SCREEN_BYTES if self.drives_screen else 0)

    @property
    def free_bytes(self) -> int | None:
        """What the allocator may reserve."""
        return None if self.total_bytes is None else max(0, self.total_bytes - self.other_use_bytes)

    @property
    def cublas_workspace_bytes(self) -> int:
        """One handle's workspace. Source: `parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp:
        :4096:2:16:8 is 8.125 MiB, and 32 MiB on Hopper and data-centre Blackwell. The newest versions
        also give 32 MiB to capability 12; CUBLAS_WORKSPACE_CONFIG overrides it everywhere.
        """
        return 32 * MIB if self.capability[0] in (9, 10) else 8 * MIB + 128 * 1024


CUBLASLT_WORKSPACE_BYTES = MIB
"""Source: `_parseChosenWorkspaceSize` in aten/src/ATen/cuda/CUDABlas.cpp (1024 KiB)."""

ANY_DEVICE = Device("any CUDA device", None)


def _card(name: str, total_mib: int, capability: tuple[int, int], fp32: float, bf16: float,
          drives_screen: bool = False) -> tuple[str, Device]:
    return name, Device(name, total_mib * MIB, capability, fp32, bf16, drives_screen)


DEVICES: dict[str, Device] = dict([
    _card("T4", 15360, (7, 5), 8.1, 8.1),
    _card("V100-16GB", 16384, (7, 0), 15.7, 15.7),
    _card("V100-32GB", 32768, (7, 0), 15.7, 15.7),
    _card("RTX 3060", 12288, (8, 6), 12.7, 25.5, True),
    _card("RTX 3090", 24576, (8, 6), 35.6, 71.0, True),
    _card("RTX 4060 Ti 16GB", 16380, (8, 9), 22.1, 44.1, True),
    _card("RTX 4070", 12282, (8, 9), 29.1, 58.3, True),
    _card("RTX 4080", 16376, (8, 9), 48.7, 97.5, True),
    _card("RTX 4090", 24564, (8, 9), 82.6, 165.2, True),
    _card("RTX 5070 Ti Laptop", 12227, (12, 0), 23.0, 46.0, True),
    _card("RTX 5090", 32607, (12, 0), 104.8, 209.5, True),
    _card("A10", 23028, (8, 6), 31.2, 62.5),
    _card("L4", 23034, (8, 9), 30.3, 60.5),
    _card("L40S", 46068, (8, 9), 91.6, 183.0),
    _card("RTX A6000", 49140, (8, 6), 38.7, 77.4),
    _card("A100-40GB", 40960, (8, 0), 19.5, 312.0),
    _card("A100-80GB", 81920, (8, 0), 19.5, 312.0),
    _card("H100-80GB", 81559, (9, 0), 66.9, 989.0),
    _card("H200", 143771, (9, 0), 66.9, 989.0),
])


def find_device(text: str) -> Device:
    """A card of the table by name (case and spaces aside), or a bare size such as `12GiB`.

    A size is taken as the memory of a card of capability 8.0 that also drives a screen: rather too little
    room than too much. `--other-memory` says what is really taken.

    Raises:
        UnknownNameError: if it is neither.
    """
    wanted = _squash(text)
    for name, device in DEVICES.items():
        if _squash(name) == wanted:
            return device
    try:
        return Device(text, parse_bytes(text, "device_memory"), drives_screen=True)
    except ValueError:
        raise UnknownNameError(f"device_memory: must be a size such as 12GiB or one of {', '.join(DEVICES)}, got "
                               f"{text!r}. Give one of these.") from None


def _squash(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
