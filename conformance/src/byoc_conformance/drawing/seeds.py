"""Random numbers reproducible in every process."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["generator_of"]


def generator_of(seed: int, *parts: object) -> np.random.Generator:
    """Return a generator for a single purpose, named by ``parts``."""
    return np.random.default_rng([seed, *(zlib.crc32(str(part).encode()) for part in parts)])
