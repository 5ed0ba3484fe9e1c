"""Toy: a device for sessions that need none."""

from cake.kinds.device import Device


class Toy(Device):
    name = "Toy"
    arch = "sm_90a"
    sms = 1
    l2_bytes = memory_bytes = shared_per_sm = shared_per_block = threads_per_sm = blocks_per_sm = 1
