"""RTX 5090: Blackwell consumer GPU

Source: NVIDIA RTX Blackwell architecture white paper; CUDA C++ Programming Guide,
compute capability 12.0.
"""

from __future__ import annotations

from cake.kinds.device import Device

MIB = 2**20
KIB = 2**10


class Rtx5090(Device):
    name = "RTX5090"
    arch = "sm_120a"
    sms = 170
    l2_bytes = 96 * MIB
    memory_bytes = 32607 * MIB
    shared_per_sm = 100 * KIB
    shared_per_block = 99 * KIB
    threads_per_sm = 1536
    blocks_per_sm = 24
