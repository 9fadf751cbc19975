"""`sheaf bench`: compare allocators in interleaved rounds."""

from sheaf.commands.bench.command import bench

__all__ = ["bench"]
