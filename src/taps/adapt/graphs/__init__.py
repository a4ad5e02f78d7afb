"""The step without the cost of launching it: recorded once as CUDA graphs, then replayed for every image."""

from taps.adapt.graphs.engine import ENGINES, Engine

__all__ = ["ENGINES", "Engine"]
