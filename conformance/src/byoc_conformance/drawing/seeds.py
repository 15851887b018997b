"""Random numbers reproducible in every process.

Python's own hashes of texts differ from process to process, so checksums of the parts are used. Another derivation
draws other examples, inputs and graphs for the same seed in all levels.
"""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["generator_of"]


def generator_of(seed: int, *parts: object) -> np.random.Generator:
    """Return a generator for a single purpose, named by ``parts``."""
    return np.random.default_rng([seed, *(zlib.crc32(str(part).encode()) for part in parts)])
