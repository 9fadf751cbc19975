"""`sheaf bench`: compare allocators in interleaved rounds."""

from sheaf.bench.command import bench

__all__ = ["bench"]
