"""B200: Blackwell data centre GPU

Source: NVIDIA B200 data sheet; Blackwell Tuning Guide, "Occupancy"; CUDA C++ Programming Guide,
compute capability 10.0.
"""

from __future__ import annotations

from cake.kinds.device import Device

MIB = 2**20
KIB = 2**10


class B200(Device):
    name = "B200"
    arch = "sm_100a"
    sms = 148
    l2_bytes = 126 * MIB
    memory_bytes = 183359 * MIB
    shared_per_sm = 228 * KIB
    shared_per_block = 227 * KIB
    threads_per_sm = 2048
    blocks_per_sm = 32
