"""Hold 20 numpy arrays of 8 MB, made by one function. The truth is the sum of their sizes, as numpy knows them."""

from __future__ import annotations

import ctypes
import os
import sys

import numpy as np

Array = np.ndarray[tuple[int], np.dtype[np.float64]]


def site_array() -> Array:
    """One array of a million numbers, all written."""
    return np.ones(1_000_000)


def main() -> None:
    """Allocate, tell the truth and wait for a line."""
    kept = [site_array() for _ in range(20)]
    print(f"held site_array {sum(array.nbytes for array in kept)}")
    dump = getattr(ctypes.CDLL(None), "accuracy_dump", None)
    if dump is not None:
        dump()
    print(f"ready {os.getpid()}", flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
