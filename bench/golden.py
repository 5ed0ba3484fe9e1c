"""The table of docs/gpu.md from a suite's raw data.

python bench/golden.py history/measured/h200_golden_kernels.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

HEAD = """| kernel | M×N×K or M×N | ours, µs | torch, µs | rate | ratio | floor, µs | error |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def line(row: dict[str, Any]) -> str:
    """One kernel: medians with quartiles, rate, ratio with its interval, floor, worst error."""
    timing = row["timing"]
    torch, ratio = timing["arms"]["torch"], timing["ratios"]["torch"]
    (ours,) = (arm for name, arm in timing["arms"].items() if name != "torch")
    shape = "×".join(str(row["dims"][name]) for name in ("M", "N", "K") if name in row["dims"])
    wide = row["constants"].get("BN") == 256
    worst = max(output["worst"] for check in row["checks"] for output in check["outputs"].values())
    matrix = row["name"].startswith("gemm")
    rate = f"{ours['tflops']:.0f} TFLOP/s" if matrix else f"{ours['gbps'] / 1000:.2f} TB/s"
    cells = [
        row["name"] + (" (BN=256, STAGES=3)" if wide else ""),
        shape,
        _times(ours),
        _times(torch),
        rate,
        f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]",
        f"{timing['floor']['seconds'] * 1e6:.1f}",
        f"{worst:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def _times(arm: dict[str, Any]) -> str:
    median, low, high = (arm[name] * 1e6 for name in ("median", "low", "high"))
    return f"{median:.1f} ({low:.1f} to {high:.1f})"


def table(path: Path) -> str:
    """The whole table in Markdown."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return "\n".join([HEAD, *map(line, document["rows"])])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a suite's results as a table.")
    parser.add_argument("suite", type=Path, help="suite.json of `python -m cake.device.suite`")
    print(table(parser.parse_args().suite))


if __name__ == "__main__":
    main()
