"""RTX 4090: Ada consumer GPU

Source: NVIDIA Ada architecture white paper; Ada Tuning Guide, "Occupancy"; CUDA C++ Programming Guide,
compute capability 8.9.
"""

from __future__ import annotations

from cake.kinds.device import Device

MIB = 2**20
KIB = 2**10


class Rtx4090(Device):
    name = "RTX4090"
    arch = "sm_89"
    sms = 128
    l2_bytes = 72 * MIB
    memory_bytes = 24564 * MIB
    shared_per_sm = 100 * KIB
    shared_per_block = 99 * KIB
    threads_per_sm = 1536
    blocks_per_sm = 24
