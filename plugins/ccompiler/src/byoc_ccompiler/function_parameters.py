"""The parameters of a C function shared by kernels, collected while the body is written.

Kernels share a function if parameters and body are equal. Anything different between the kernels (tensors, strides,
symbolic sizes) must thus be a parameter; known sizes are part of the body.
"""

from __future__ import annotations

from typing import TypeVar

from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Kernel

__all__ = ["FunctionParameters"]

_Parameter = TypeVar("_Parameter", c.Buffer, c.Variable)


class FunctionParameters:
    """Parameters in the order of first use in a body, with the argument of each in the call."""

    def __init__(self) -> None:
        self._arguments: dict[c.Buffer | c.Variable, c.Expression] = {}
        self._sizes: dict[c.Expression, c.Variable] = {}

    def add(self, parameter: _Parameter, argument: c.Expression) -> _Parameter:
        """Add a parameter with the argument in the call, and return the parameter."""
        self._arguments[parameter] = argument
        return parameter

    def size(self, value: c.Expression | Dim, name: str) -> c.Expression:
        """Return a size or an index of the kernel: a known number, or a parameter shared by equal values."""
        value = value if isinstance(value, c.Expression) else c.Size(value)
        if isinstance(value, c.Size) and isinstance(value.dim, int):
            return value
        if value not in self._sizes:
            self._sizes[value] = self.add(c.Variable(name), value)
        return self._sizes[value]

    def call(self, kernel: Kernel, name: str, body: c.Block) -> c.Evaluate:
        """Return the call of the function with this body, shared by the kernels of the source."""
        function = c.simplify(c.Function(name, tuple(self._arguments), body))
        return c.Evaluate(c.Call(kernel.shared_function(function), tuple(self._arguments.values())))
