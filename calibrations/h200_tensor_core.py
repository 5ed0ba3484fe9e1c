"""H200 tensor cores: rates and latencies of wgmma and mma.sync

Measured how:
    Not measured. The dense bf16 peak of the data sheet (989 TFLOP/s on 132 SMs at 1.83 GHz) is 4096 flop a
    cycle and SM, so that wgmma m64nNk16 takes 4 cycles for each 8 columns. mma.sync is known to reach 60 to
    65 % of that on Hopper; latencies are those that published microbenchmarks agree on.
Valid for:
    bf16 and f16 operands with f32 accumulators, operands of wgmma in shared memory.
Not valid for:
    8-bit operands, tf32, sparse operands, wgmma with A in registers.
"""

from cake.kinds.calibration import Calibration, Provenance, Value

CALIBRATION = Calibration(
    device="H200",
    concern="tensor_core",
    provenance=Provenance(
        source="vendor",
        reference="NVIDIA H200 data sheet; Hopper Tuning Guide; Luo et al., Benchmarking and Dissecting the "
        "NVIDIA Hopper GPU Architecture (arXiv 2402.13499)",
    ),
    sets={
        "tensor.peak": Value(4096.0, "flop/cycle", spread=0.0),
        "wgmma.m64k16.cycles_per_n8": Value(4.0, "cycles", spread=0.08),
        "wgmma.latency": Value(32.0, "cycles", spread=0.3),
        "mma.flops": Value(2540.0, "flop/cycle", spread=0.08),
        "mma.latency": Value(33.0, "cycles", spread=0.15),
    },
)
