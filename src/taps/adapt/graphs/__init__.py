"""The step without the cost of launching it: captured once as CUDA graphs, then replayed for every image."""

from taps.adapt.graphs.engine import ENGINES, Engine, Start, batch_size, report, shared_start

__all__ = ["ENGINES", "Engine", "Start", "batch_size", "report", "shared_start"]
