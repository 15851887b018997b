"""Random numbers that are the same in every process."""

from __future__ import annotations

import zlib

import numpy as np

__all__ = ["generator_of"]


def generator_of(seed: int, *parts: object) -> np.random.Generator:
    """Gives a generator for one purpose, which ``parts`` name."""
    return np.random.default_rng([seed, *(zlib.crc32(str(part).encode()) for part in parts)])
