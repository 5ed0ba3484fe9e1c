"""H200: Hopper data centre GPU, SXM with HBM3e

Source: NVIDIA H200 data sheet; Hopper Tuning Guide, "Occupancy"; CUDA C++ Programming Guide,
compute capability 9.0.
"""

from __future__ import annotations

from cake.kinds.device import Device

MIB = 2**20
KIB = 2**10


class H200(Device):
    name = "H200"
    arch = "sm_90a"
    sms = 132
    l2_bytes = 60 * MIB
    memory_bytes = 143771 * MIB
    shared_per_sm = 228 * KIB
    shared_per_block = 227 * KIB
    threads_per_sm = 2048
    blocks_per_sm = 32
