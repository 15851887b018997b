"""Parsing of the small syntax of script: types, literals and constants. Nothing is ever executed."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from byoc_core.dims import parse_dim
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import ByocError, ScriptError
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.opset.types import ObjectType, TensorType, Type

__all__ = ["ScriptReader", "script_name"]

_TYPE_FORM = 'R.Tensor((2, "n"), "float32") or R.Object("kind")'


class ScriptReader:
    """A reader of syntax nodes independent of scopes; errors show the line of the script.

    Args:
        text: the script, for messages.
        constants: arrays by digest, for constants cited in the text.
        source: name of the text in messages.
        first_line: number of the text's first line in the source.
    """

    def __init__(
        self, text: str, constants: Mapping[str, npt.NDArray[np.generic]], source: str, first_line: int
    ) -> None:
        self.store = ConstantStore()
        self._lines = re.split(r"\r\n|\r|\n", text.removesuffix("\n"))
        self._constants = constants
        self._source = source
        self._first_line = first_line

    def line(self, node: ast.expr | ast.stmt) -> int:
        """Return the line of a node in the source."""
        return node.lineno + self._first_line - 1

    def fail(self, node: ast.AST | None, problem: str, *, expected: object = None, hint: str | None = None) -> NoReturn:
        """Raise :class:`ScriptError` for a node, with the node's line."""
        line = getattr(node, "lineno", None)
        where = f"{self._source}, line {line + self._first_line - 1}" if line else self._source
        raise ScriptError(where, problem, expected=expected, hint=hint, detail=self.window(node))

    def window(self, node: ast.AST | None) -> str | None:
        """Return the lines around a node, with the node's line marked by ``>``."""
        line = getattr(node, "lineno", None)
        if line is None or not 0 < line <= len(self._lines):
            return None
        first = max(1, line - 2)
        last = min(len(self._lines), line + 2)
        return "\n".join(
            f"{'>' if n == line else ' '} {n + self._first_line - 1:4} | {self._lines[n - 1]}".rstrip()
            for n in range(first, last + 1)
        )

    def check_keywords(self, call: ast.Call) -> None:
        """Check for repeated keywords, like Python's own compiler. ``**`` is refused too."""
        seen: set[str] = set()
        for keyword in call.keywords:
            if keyword.arg is None:
                self.fail(call, "has `**` arguments")
            if keyword.arg in seen:
                self.fail(call, f"passes `{keyword.arg}` twice")
            seen.add(keyword.arg)

    def literal_constant(self, call: ast.Call) -> Constant:
        """Parse ``R.const(values, "dtype")`` into the store."""
        arguments = self._arguments(call, ("values", "dtype"))
        dtype = arguments.get("dtype", "float32")
        if "values" not in arguments or not isinstance(dtype, str):
            self.fail(call, "is not a constant", expected='R.const(values, "dtype")')
        try:
            return self.store.add(_array(arguments["values"], dtype))
        except (ValueError, TypeError, OverflowError) as error:
            self.fail(call, f"is not a constant of dtype {dtype}: {error}")

    def cited_constant(self, call: ast.Call) -> Constant:
        """Parse ``R.constant("digest", R.Tensor(...))`` with an array from the given constants."""
        match call.args:
            case [ast.Constant(value=str(digest)), type_node]:
                type_ = self.type(type_node)
                array = self._constants.get(digest)
                if not isinstance(type_, TensorType):
                    self.fail(call, "does not have a tensor type")
                if array is None:
                    self.fail(call, f"constant {digest[:16]}... has no array", hint="Pass the array in `constants=`.")
                constant = Constant(digest, type_)
                if not isinstance(self._constants, ConstantStore) and self.store.add(array).digest != digest:
                    self.fail(call, f"the array of constant {digest[:16]}... has another digest")
                self.store.adopt(constant, array)
                return constant
        self.fail(call, "is not a constant", expected='R.constant("digest", R.Tensor(...))')

    def types(self, node: ast.expr) -> tuple[Type, ...]:
        """Parse a type, or a list or tuple of types."""
        nodes = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
        return tuple(self.type(item) for item in nodes)

    def type(self, node: ast.expr) -> Type:
        """Parse ``R.Tensor(shape, "dtype")`` or ``R.Object("kind")``."""
        if not isinstance(node, ast.Call):
            self.fail(node, "is not a type", expected=_TYPE_FORM)
        match script_name(node.func):
            case "Object":
                kind = self._arguments(node, ("kind",)).get("kind")
                if isinstance(kind, str):
                    return ObjectType(kind)
            case "Tensor":
                arguments = self._arguments(node, ("shape", "dtype"))
                if "shape" in arguments:
                    return self._tensor_type(node, arguments["shape"], arguments.get("dtype", "float32"))
        self.fail(node, "is not a type", expected=_TYPE_FORM)

    def _arguments(self, call: ast.Call, names: tuple[str, ...]) -> dict[str, Any]:
        """Return the literal arguments of a call by parameter name."""
        self.check_keywords(call)
        if len(call.args) > len(names):
            self.fail(call, f"has {len(call.args)} positional arguments", expected=f"at most {len(names)}")
        arguments = dict(zip(names, call.args, strict=False))
        for keyword in call.keywords:
            if keyword.arg not in names:
                self.fail(call, f"has no argument `{keyword.arg}`", expected=", ".join(names))
            if keyword.arg in arguments:
                self.fail(call, f"passes `{keyword.arg}` twice")
            arguments[keyword.arg] = keyword.value
        return {name: self.literal(value) for name, value in arguments.items()}

    def _tensor_type(self, node: ast.expr, shape: object, dtype: object) -> TensorType:
        if not isinstance(dtype, str):
            self.fail(node, "has a dtype other than a string")
        try:
            dtype_info(dtype)
            if shape is None:
                return TensorType(None, dtype)
            if not isinstance(shape, tuple):
                self.fail(node, "has a shape other than a tuple")
            return TensorType(tuple(parse_dim(dim) for dim in shape), dtype)
        except ScriptError:
            raise
        except ByocError as error:
            self.fail(node, f"is not a type: {error}")

    def attr_dict(self, node: ast.expr) -> dict[str, Any]:
        """Parse a dict of attributes."""
        value = self.literal(node)
        if not isinstance(value, dict):
            self.fail(node, "is not a dict of attributes")
        return value

    def literal(self, node: ast.expr) -> Any:
        """Parse a literal; lists become tuples, the stored form of attributes."""
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return tuple(self.literal(item) for item in items)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.Dict(keys=keys, values=values):
                return {self._key(k, node): self.literal(v) for k, v in zip(keys, values, strict=True)}
            case ast.Call(func=func, args=[ast.Constant(value=str(text))], keywords=[]) if script_name(func) == "dim":
                return parse_dim(text)
            case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value="nan" | "inf" | "-inf" as text)]):
                return float(text)
        self.fail(node, "is not a literal")

    def _key(self, node: ast.expr | None, of: ast.expr) -> str:
        match node:
            case ast.Constant(value=str(key)):
                return key
        self.fail(of, "is not a dict with strings as keys")


def _array(values: object, dtype: str) -> npt.NDArray[np.generic]:
    """Return an array of nested tuples of numbers, each representable in the dtype.

    Raises:
        ValueError, TypeError, OverflowError: a value does not fit, or the nesting is ragged.
    """
    shape, leaves = _shape(values), list(_leaves(values))
    info = dtype_info(dtype)
    if info.kind == "float":
        with np.errstate(all="ignore"):
            array = np.array(leaves, dtype=to_numpy(dtype))
            fits = all(math.isfinite(item) for item, leaf in zip(array, leaves, strict=True) if math.isfinite(leaf))
    else:
        exact = bool if info.kind == "bool" else int
        if any(type(leaf) is not exact for leaf in leaves):
            raise TypeError(f"a value is not of type {exact.__name__}")
        signed = info.kind == "int"
        least, end = (-(1 << (info.bits - 1)), 1 << (info.bits - 1)) if signed else (0, 1 << info.bits)
        fits = all(least <= leaf < end for leaf in leaves)
        array = np.array(leaves if fits else 0, dtype=to_numpy(dtype))
    if not fits:
        raise OverflowError("a value is out of range")
    return array.reshape(shape)


def _shape(values: object) -> tuple[int, ...]:
    if not isinstance(values, tuple):
        return ()
    shapes = {_shape(item) for item in values}
    if len(shapes) > 1:
        raise ValueError("the rows have different lengths")
    return (len(values), *(shapes.pop() if shapes else ()))


def _leaves(values: object) -> Iterator[int | float]:
    if isinstance(values, tuple):
        for item in values:
            yield from _leaves(item)
    elif isinstance(values, int | float):
        yield values
    else:
        raise TypeError("a value is not a number")


def script_name(node: ast.expr) -> str | None:
    """Return ``"nn.conv2d"`` for the syntax ``R.nn.conv2d``, else ``None``."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id == "R" and parts:
        return ".".join(reversed(parts))
    return None
