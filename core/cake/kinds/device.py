"""Device: the fixed facts of one GPU model (plugins/devices/NAME.py): limits, never rates (calibrations)."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar


class Device(ABC):
    """One GPU model. Bytes and counts as the vendor's occupancy tables give them."""

    name: ClassVar[str]
    arch: ClassVar[str]
    sms: ClassVar[int]
    l2_bytes: ClassVar[int]
    memory_bytes: ClassVar[int]
    shared_per_sm: ClassVar[int]
    shared_per_block: ClassVar[int]
    """Opt-in maximum of dynamic shared memory a block."""
    shared_reserved: ClassVar[int] = 1024
    registers_per_sm: ClassVar[int] = 65536
    threads_per_sm: ClassVar[int]
    blocks_per_sm: ClassVar[int]
