"""Steps other than primitives as a word and numbers: the form of the C extension, and of stored plans."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from byoc_dnnl.plan import BytePooling, ByteQuantisation, Check, CoreStep, WeightProduct

__all__ = ["CoreNumbers", "core_step"]

CoreNumbers = tuple[float | str | tuple[int, ...], ...]


def core_step(step: CoreStep, numbers: Sequence[int]) -> tuple[str, CoreNumbers]:
    """Return a step's word and fields, given the numbers of all locations.

    The first field of ``compute`` is the name of a function; see :mod:`byoc_core.runtime.vector_functions`.
    """
    if isinstance(step, Check):
        width = step.element_nbytes
        return "check", (*numbers, step.location.desc.nbytes // width, width, step.limit_bits)
    if isinstance(step, BytePooling):
        is_signed = step.source.desc.dtype == "int8"
        return "pool", (*numbers, is_signed, step.images, step.channels, step.rows, step.columns)
    if isinstance(step, ByteQuantisation):
        images, channels, *sizes = step.source.desc.sizes
        is_signed = step.target.desc.dtype == "int8"
        return "quantise", (*numbers, is_signed, images, channels, prod(sizes), float(step.scale), step.zero_point)
    if isinstance(step, WeightProduct):
        form = (step.rows, step.depth, step.columns, step.block_size, step.num_bits)
        return "multiply", (*numbers, *form, step.max_lanes, step.zeros is not None)
    return "compute", (step.function, *numbers, step.rows, step.columns)
