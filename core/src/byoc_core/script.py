"""Script: IR written as Python, from a string or a decorated class.

::

    from byoc_core import script as R

    @R.ir_module
    class Example:
        @R.function
        def main(x: R.Tensor(("n", 16), "float32"), y: R.Tensor(("n", 16), "float32")):
            lv0 = R.multiply(x, y)
            return lv0

The functions are never run: the source of the functions is parsed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, parse_dim
from byoc_core.errors import ScriptError
from byoc_core.ir.module import IRModule
from byoc_core.ir.parser import parse_module
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import ObjectType, TensorType, tensor

__all__ = ["Object", "Tensor", "constant", "dim", "function", "ir_module", "module_attrs", "parse", "region"]

_Callable = TypeVar("_Callable", bound=Callable[..., Any])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Declare ``R.<op>`` valid for type checkers: bodies are parsed, never run."""

else:

    def __getattr__(name: str) -> Any:
        """Raise the error for an absent name, with a hint for an op outside of script or a word of another system."""
        from byoc_core.ir.script_hints import hint_for

        hint = "" if name.startswith("__") else hint_for(name, __all__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{'. ' if hint else ''}{hint}")


def parse(
    text: str,
    *,
    constants: Mapping[str, npt.NDArray[np.generic]] | None = None,
    ops: OpRegistry | None = None,
) -> IRModule:
    """Parse a module from script text.

    Args:
        text: the text printed by ``str(module)``, or the same written by hand.
        constants: arrays by digest, for constants cited by the text.
        ops: known ops, and the registry of the module; the core's own ops by default.

    Raises:
        ScriptError: the text is not script.
        IRTypeError: an op does not fit the operands.
    """
    return parse_module(text, ops, constants=constants)


def ir_module(definition: type) -> IRModule:
    """Turn a class of functions into a module (class decorator).

    The class may stand in a file, in a cell of Jupyter or IPython, at Python's prompt, or in a text for `exec`.

    Raises:
        ScriptError: Python keeps no source of the class, or the source is not script.
    """
    from byoc_core.ir.class_source import find_class_source

    if not isinstance(definition, type):
        raise ScriptError(
            "R.ir_module", "does not decorate a class", got=type(definition).__name__, expected="a class of functions"
        )
    source = find_class_source(definition, sys._getframe(1))
    return parse_module(source.text, source=source.name, first_line=source.first_line)


def function(definition: _Callable) -> _Callable:
    """Mark a function of a module class (decorator); the body is parsed, not run."""
    return definition


def region(definition: _Callable) -> _Callable:
    """Mark a region inside a function (decorator)."""
    return definition


def Tensor(shape: tuple[int | str, ...] | None, dtype: str = "float32") -> TensorType:  # noqa: N802 - reads as a type
    """Return a tensor type for an annotation; strings in the shape are symbolic sizes."""
    return tensor(shape, dtype)


def Object(kind: str) -> ObjectType:  # noqa: N802 - reads as a type
    """Return an opaque type for an annotation."""
    return ObjectType(kind)


def constant(digest: str, type_: TensorType) -> None:
    """Cite a constant by digest in the head of a module class."""


def dim(text: str) -> Dim:
    """Return a symbolic size for an attribute of a module or a function."""
    return parse_dim(text)


def module_attrs(attrs: Mapping[str, Any]) -> None:
    """State the module's attributes in the head of a module class."""
