"""The cost model: the machine on a clock, then occupancy, waves and the chip's own limits."""

from cake.cost.parameters import KEYS, Parameters, Unknown
from cake.cost.predict import Floor, LineCost, Prediction, floor, predict

__all__ = ["KEYS", "Floor", "LineCost", "Parameters", "Prediction", "Unknown", "floor", "predict"]
