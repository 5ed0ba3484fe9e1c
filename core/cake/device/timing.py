"""Timing on the device: bursts between two events, arms interleaved, medians with their spread.

A burst is a CUDA graph of many launches, replayed between two events, so that neither the host's pace nor
the events' own cost is measured. With a cold L2 the launches of a burst walk over copies of the tensors that
together exceed the cache several times; with a warm one they stay on one copy. Two arms take turns in the
order A B B A, which cancels drift to first order; their ratio is taken within each such round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

import numpy as np

from cake.device.driver import call, driver
from cake.device.launch import Arguments, LoadedKernel

L2 = Literal["cold", "warm"]
BURST_S = 2e-3
WARM_UP_S = 0.3
COPIES_OF_L2 = 3
MOST_COPIES = 64
MOST_LAUNCHES = 2000


class Arm(Protocol):
    """Something to time: enqueues `count` launches on a stream as one replayable burst."""

    name: str

    def prepare(self, count: int, stream: Any) -> Callable[[], None]:
        """Record a burst of `count` launches; calling the result enqueues it on `stream`."""
        ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds a launch over `samples` bursts: median, quartiles, extremes."""

    median: float
    low: float
    high: float
    least: float
    most: float
    samples: int
    launches: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster the first arm is than the other: the median over rounds and its 95 % interval."""

    ratio: float
    low: float
    high: float
    rounds: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All arms by name, and the ratio of each further arm to the first."""

    arms: dict[str, Spread]
    ratios: dict[str, Ratio]
    l2: L2
    copies: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class KernelArm:
    """A generated kernel over one or more copies of its tensors, in turn."""

    def __init__(self, name: str, kernel: LoadedKernel, copies: Sequence[Arguments]) -> None:
        self.name = name
        self._kernel = kernel
        self._copies = copies

    def prepare(self, count: int, stream: Any) -> Callable[[], None]:
        cu = driver()
        call(cu.cuStreamBeginCapture, stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        for index in range(count):
            self._kernel.launch(self._copies[index % len(self._copies)], stream)
        graph = call(cu.cuStreamEndCapture, stream)
        burst = call(cu.cuGraphInstantiate, graph, 0)
        call(cu.cuGraphDestroy, graph)
        return lambda: call(cu.cuGraphLaunch, burst, stream)


def copies_needed(bytes_each: int, l2_bytes: int, free_bytes: int, l2: L2) -> int:
    """How many copies of the tensors a burst walks over: for a cold cache, several times its size in all."""
    if l2 == "warm":
        return 1
    wanted = max(2, -(-COPIES_OF_L2 * l2_bytes // max(1, bytes_each)))
    return int(max(1, min(wanted, MOST_COPIES, free_bytes // 2 // max(1, bytes_each))))


def measure(
    arms: Sequence[Arm], *, rounds: int = 20, l2: L2 = "cold", copies: int = 1, seed: int = 0
) -> Measurement:
    """Time all arms in one process, interleaved.

    `rounds`: each gives two bursts of every arm. `copies`: the least launches a burst, so that it meets each
    copy of the tensors. Raises DeviceFault where a launch fails.
    """
    cu = driver()
    stream = call(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    clock = _Clock(stream)
    bursts, counts = [], []
    for arm in arms:
        count = _launches(arm, clock, copies)
        bursts.append(arm.prepare(count, stream))
        counts.append(count)
    _warm_up(bursts, clock)
    samples: list[list[float]] = [[] for _ in arms]
    for _ in range(rounds):
        order = range(len(arms))
        for index in (*order, *reversed(order)):
            samples[index].append(clock.seconds(bursts[index]) / counts[index])
    clock.close()
    call(cu.cuStreamDestroy, stream)
    names = [arm.name for arm in arms]
    spreads = {n: spread(s, c) for n, s, c in zip(names, samples, counts, strict=True)}
    ratios = {n: ratio(samples[0], s, seed) for n, s in zip(names[1:], samples[1:], strict=True)}
    return Measurement(spreads, ratios, l2, copies)


class _Clock:
    """Two events on a stream."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._start, self._end = (call(driver().cuEventCreate, 0) for _ in range(2))

    def seconds(self, burst: Callable[[], None]) -> float:
        """Device time of one burst."""
        cu = driver()
        call(cu.cuEventRecord, self._start, self._stream)
        burst()
        call(cu.cuEventRecord, self._end, self._stream)
        call(cu.cuEventSynchronize, self._end)
        return float(call(cu.cuEventElapsedTime, self._start, self._end)) * 1e-3

    def close(self) -> None:
        for event in (self._start, self._end):
            call(driver().cuEventDestroy, event)


def _launches(arm: Arm, clock: _Clock, copies: int) -> int:
    """Launches for a burst of about BURST_S, a multiple of the copies."""
    trial = arm.prepare(copies, clock._stream)
    clock.seconds(trial)
    each = min(clock.seconds(trial) for _ in range(3)) / copies
    wanted = min(MOST_LAUNCHES, max(1, round(BURST_S / max(each, 1e-7))))
    return -(-wanted // copies) * copies


def _warm_up(bursts: Sequence[Callable[[], None]], clock: _Clock) -> None:
    """Run all arms until clocks and caches have settled."""
    end = time.monotonic() + WARM_UP_S
    while time.monotonic() < end:
        for burst in bursts:
            clock.seconds(burst)


def spread(samples: Sequence[float], launches: int) -> Spread:
    """Median, quartiles and extremes of samples in seconds a launch."""
    low, median, high = (float(q) for q in np.quantile(samples, (0.25, 0.5, 0.75)))
    return Spread(median, low, high, float(min(samples)), float(max(samples)), len(samples), launches)


def ratio(first: Sequence[float], other: Sequence[float], seed: int = 0, resamples: int = 2000) -> Ratio:
    """`other` over `first`, round by round (two samples each): above 1 where the first arm is faster.

    The interval is a percentile bootstrap of the median over rounds, deterministic by `seed`.
    """
    pairs = np.asarray(other).reshape(-1, 2).sum(axis=1) / np.asarray(first).reshape(-1, 2).sum(axis=1)
    rng = np.random.default_rng(seed)
    drawn = rng.choice(pairs, size=(resamples, pairs.size), replace=True)
    low, high = (float(q) for q in np.quantile(np.median(drawn, axis=1), (0.025, 0.975)))
    return Ratio(float(np.median(pairs)), low, high, int(pairs.size))


def copy_bandwidth(size: int = 1 << 30, repeats: int = 10) -> float:
    """Bytes a second of a large copy within device memory, counting bytes read and written.

    The practical ceiling of memory-bound kernels. Raises DeviceFault where the memory is not there.
    """
    cu = driver()
    stream = call(cu.cuStreamCreate, int(cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
    source, target = (call(cu.cuMemAlloc, size) for _ in range(2))
    call(cu.cuMemsetD8, source, 0x5A, size)
    clock = _Clock(stream)
    times = [
        clock.seconds(lambda: call(cu.cuMemcpyDtoDAsync, target, source, size, stream))
        for _ in range(3 + repeats)
    ]
    clock.close()
    for allocation in (source, target):
        call(cu.cuMemFree, allocation)
    call(cu.cuStreamDestroy, stream)
    return 2 * size / float(np.median(times[3:]))
