"""A100: Ampere data centre GPU, SXM with 80 GB

Source: NVIDIA A100 architecture white paper; Ampere Tuning Guide, "Occupancy"; CUDA C++ Programming Guide,
compute capability 8.0.
"""

from __future__ import annotations

from cake.kinds.device import Device

MIB = 2**20
KIB = 2**10


class A100(Device):
    name = "A100"
    arch = "sm_80"
    sms = 108
    l2_bytes = 40 * MIB
    memory_bytes = 81920 * MIB
    shared_per_sm = 164 * KIB
    shared_per_block = 163 * KIB
    threads_per_sm = 2048
    blocks_per_sm = 32
