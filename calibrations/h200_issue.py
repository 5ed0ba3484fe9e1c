"""H200 issue, arithmetic and synchronization: lanes, latencies, barriers, launches

Measured how:
    Not measured. Lanes are those of the SM (128 FP32, 16 special-function); the clock is what boards hold
    under tensor load, below the 1.98 GHz of their boost; latencies are those that published microbenchmarks
    agree on; an empty kernel's launch is what event timing shows on such hosts.
Valid for:
    f32 arithmetic, conversions to and from 16 bits, kernels launched one after the other in a stream.
Not valid for:
    f64 and integer arithmetic, CUDA graphs, programmatic dependent launch.
"""

from cake.kinds.calibration import Calibration, Provenance, Value

CALIBRATION = Calibration(
    device="H200",
    concern="issue",
    provenance=Provenance(
        source="vendor",
        reference="NVIDIA H100 Tensor Core GPU Architecture white paper; CUDA C++ Programming Guide, "
        "arithmetic throughput; Luo et al. (arXiv 2402.13499)",
    ),
    sets={
        "clock": Value(1.755e9, "Hz", spread=0.13),
        "launch.time": Value(2.0e-6, "s", spread=0.4),
        "cta.latency": Value(600.0, "cycles", spread=0.5),
        "alu.lanes": Value(128.0, "count", spread=0.1),
        "alu.latency": Value(4.5, "cycles", spread=0.1),
        "mufu.lanes": Value(16.0, "count", spread=0.05),
        "shuffle.latency": Value(24.0, "cycles", spread=0.15),
        "barrier.latency": Value(24.0, "cycles", spread=0.3),
        "mbarrier.latency": Value(20.0, "cycles", spread=0.4),
        "cluster.latency": Value(190.0, "cycles", spread=0.3),
        "fence.latency": Value(30.0, "cycles", spread=0.4),
    },
)
