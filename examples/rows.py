"""Models computing row by row: the size counting the rows, and the inputs with a value for each row."""

from __future__ import annotations

from dataclasses import dataclass

import byoc_core
import numpy as np
from byoc_core.dims import DimExpr, symbols_of

__all__ = ["RowSize", "find_row_size"]


@dataclass(frozen=True)
class RowSize:
    """The size of a model to cut inputs at, and to join inputs along.

    Attributes:
        symbol: the name of the size: the first size of each output.
        inputs: the inputs with this first size; all rows of a call share the other inputs.
    """

    symbol: str
    inputs: frozenset[str]


def find_row_size(session: byoc_core.Session) -> RowSize:
    """Return the symbolic size at the front of all outputs.

    The rows of the model must be independent, as in any model exported with a dynamic batch. Sizes cannot show this.

    Raises:
        ValueError: an input or an output is no tensor of numbers, the outputs have no symbolic first size in common, or
            the size has another location too.
    """
    for value in (*session.inputs, *session.outputs):
        if value.form != "tensor" or np.dtype(value.dtype).kind not in "biuf":
            raise ValueError(f"`{value}` is no tensor of numbers")
    fronts = {str(value.shape[0]) if value.shape else "" for value in session.outputs}
    symbol = fronts.pop() if len(fronts) == 1 else ""
    inputs = [v.name for v in session.inputs if symbol in v.symbols and v.shape and str(v.shape[0]) == symbol]
    if not inputs:
        outputs = ", ".join(f"`{value}`" for value in session.outputs)
        raise ValueError(
            f"inputs and outputs have no symbolic first size in common: {outputs}. Export the model with a dynamic"
            " batch"
        )
    for value in (*session.inputs, *session.outputs):
        shape = value.shape or ()
        later = shape[1:] if shape and str(shape[0]) == symbol else shape
        if any(isinstance(dim, DimExpr) and symbol in symbols_of(dim) for dim in later):
            raise ValueError(f"`{value}`: the size {symbol} counts the rows, and stands elsewhere than in front")
    return RowSize(symbol, frozenset(inputs))
