"""`sheaf bench`: allocators beside each other, in interleaved rounds."""

from sheaf.bench.command import bench

__all__ = ["bench"]
