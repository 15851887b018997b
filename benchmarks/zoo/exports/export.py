"""An exported model: how its file is made, and the inputs it is run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Export", "Feeds", "Sizes"]

Sizes = Mapping[str, int]
"""A choice of the dynamic sizes of a model, by name."""
Feeds = Mapping[str, Any]
"""Inputs by name; an input of strings is an array of objects."""


@dataclass(frozen=True)
class Export:
    """A model as a user exports it.

    Attributes:
        name: the model's name, and the exporter's where there are several: ``whisper-encoder/dynamo``.
        doc: the architecture and its source, in a line.
        write: write the ONNX file at a path; weights follow from a seed.
        draw: return inputs for a choice of sizes, from a generator of random numbers.
        sizes: the choices of sizes that the model is run at; a single empty one for a model without dynamic sizes.
        reasons: for an output that differs from ONNX Runtime's for a reason outside the compiler: the output's name,
            and the reason.
        original: of a quantised model: write the model of floats with the same inputs and outputs.
    """

    name: str
    doc: str
    write: Callable[[Path], None]
    draw: Callable[[np.random.Generator, Sizes], Feeds]
    sizes: Sequence[Sizes] = ({},)
    reasons: Mapping[str, str] = field(default_factory=dict)
    original: Callable[[Path], None] | None = None
