"""H200 memory: device memory, L2, the shared-memory port, the copy engine

Measured how:
    Not measured. Device memory: 4.8 TB/s on the data sheet, of which copies sustain about 88 %. Shared
    memory: 32 banks of 4 bytes. L2: streaming distinct lines gives 5.5 to 7 TB/s in published
    microbenchmarks, while GEMMs, whose CTAs share lines, draw 8 to 10 TB/s; the number is for these and
    the spread reaches towards the others.
Valid for:
    Accesses of whole sectors, tensors larger than L2 or read for the first time.
Not valid for:
    Scattered accesses, atomics, multicast, other power limits than the SXM module's.
"""

from cake.kinds.calibration import Calibration, Provenance, Value

CALIBRATION = Calibration(
    device="H200",
    concern="memory",
    provenance=Provenance(
        source="vendor",
        reference="NVIDIA H200 data sheet; Hopper Tuning Guide; CUDA C++ Programming Guide, compute "
        "capability 9.0; Luo et al. (arXiv 2402.13499)",
    ),
    sets={
        "hbm.peak": Value(4.8e12, "bytes/s", spread=0.0),
        "hbm.bandwidth": Value(4.25e12, "bytes/s", spread=0.06),
        "l2.bandwidth": Value(9.0e12, "bytes/s", spread=0.3),
        "l2.sm_bytes": Value(64.0, "bytes/cycle", spread=0.1),
        "l2.usable": Value(0.7, "ratio", spread=0.2),
        "global.latency": Value(700.0, "cycles", spread=0.25),
        "shared.bytes": Value(128.0, "bytes/cycle", spread=0.05),
        "shared.latency": Value(29.0, "cycles", spread=0.1),
        "stmatrix.cycles": Value(4.0, "cycles", spread=0.2),
        "tma.bytes": Value(128.0, "bytes/cycle", spread=0.3),
        "tma.latency": Value(900.0, "cycles", spread=0.3),
    },
)
