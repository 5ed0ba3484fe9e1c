"""Outputs against an oracle in float64."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cake.device.arrays import Array


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its oracle.

    `worst`: the largest |got - want| / (absolute + relative * |want|); at most 1 where `ok`. `error` is the
    largest |got - want|, `relative_error` is ||got - want|| / ||want||, both over elements finite in both.
    `where` is the worst element. `mismatched` counts elements over tolerance, those that are NaN or infinite
    on one side only among them.
    """

    ok: bool
    worst: float
    error: float
    relative_error: float
    mismatched: int
    elements: int
    where: tuple[int, ...]
    got: float
    want: float
    absolute: float
    relative: float

    def as_json(self) -> dict[str, Any]:
        """Plain data; infinities and NaN as words, which JSON has no numbers for."""
        data = asdict(self)
        for name, value in data.items():
            if isinstance(value, float) and not np.isfinite(value):
                data[name] = str(value)
        data["where"] = list(self.where)
        return data


def compare(got: Array, want: Array, absolute: float, relative: float) -> Comparison:
    """`got` in the output's dtype against `want` in float64, of the same shape.

    NaN agrees with NaN alone and an infinity with the same infinity alone. Raises ValueError for other
    shapes.
    """
    if got.shape != want.shape:
        raise ValueError(f"an output of shape {list(got.shape)} against an oracle of {list(want.shape)}")
    have = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (have == want) | (np.isnan(have) & np.isnan(want))
        difference = np.where(same, 0.0, np.abs(have - want))
        # An infinity or NaN on one side only is wrong whatever the tolerance.
        difference[~same & ~(np.isfinite(have) & np.isfinite(want))] = np.inf
        allowed = absolute + relative * np.where(np.isfinite(want), np.abs(want), 0.0)
        ratio = np.divide(difference, allowed, out=np.full_like(difference, np.inf), where=allowed > 0)
        ratio[difference == 0] = 0.0
    wrong = ratio > 1.0
    finite = np.isfinite(difference) & np.isfinite(want)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape) if ratio.size else ()
    norm = float(np.linalg.norm(want[finite]))
    off = float(np.linalg.norm(difference[finite]))
    return Comparison(
        ok=not bool(wrong.any()),
        worst=float(ratio.max(initial=0.0)),
        error=float(difference[finite].max(initial=0.0)),
        relative_error=off / norm if norm else off,
        mismatched=int(np.count_nonzero(wrong)),
        elements=int(ratio.size),
        where=tuple(int(axis) for axis in place),
        got=float(have[place]) if ratio.size else 0.0,
        want=float(want[place]) if ratio.size else 0.0,
        absolute=absolute,
        relative=relative,
    )
