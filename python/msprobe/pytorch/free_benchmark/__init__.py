"""Task free_benchmark: each selected call runs a second time with its inputs changed a little, and the results are compared."""

from msprobe.pytorch.free_benchmark.benchmark import Benchmark

__all__ = ["Benchmark"]
