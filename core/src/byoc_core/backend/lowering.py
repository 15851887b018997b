"""The builder passed to the hook ``byoc_lower``: a function becomes extern calls over planned buffers.

The backend allocates buffers and adds calls in order. The core checks the calls
(:mod:`byoc_core.backend.lowered_checks`), plans the buffers together with all other memory of the program, and prints
the C. A complete lowering of a function of composites::

    def byoc_lower(function, builder):
        builder.link(objects=["toy.o"])
        for call in function.bindings:
            inputs = builder.operands(call)
            rows, columns = call.result.type.shape
            output = builder.buffer(call.result).written()
            builder.call_extern(call.attrs["name"].replace(".", "_"), *inputs, output, rows, columns)
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from byoc_core.backend.lowered_buffers import Access, Buffer, BufferPart, BufferRole
from byoc_core.backend.lowered_checks import check_lowered
from byoc_core.backend.lowered_function import Copy, CValue, ExternCall, Loop, LoweredFunction, Statement
from byoc_core.dims import Dim, DimExpr, shape_symbols, symbol
from byoc_core.errors import CodegenError
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.structural import COMPOSITE
from byoc_core.native.build_options import merge_linkage
from byoc_core.native.c_text import c_identifier
from byoc_core.native.toolchain import BuildOptions
from byoc_core.opset.types import TensorType

__all__ = ["Access", "Buffer", "BufferPart", "BufferRole", "CValue", "LoweringBuilder"]

Argument = Buffer | BufferPart | Dim | float | CValue
"""An argument of an extern call; a buffer alone is read as a whole."""


class LoweringBuilder:
    """A builder of the lowered form of a function.

    Args:
        function: the function to lower.

    Attributes:
        inputs: the buffers of the parameters, in order.
        outputs: the buffers of the results, in order.
        options: the options of compiling and linking the C; a backend may assign others before :meth:`link`.
        constants: the arrays added by :meth:`constant`, by digest.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.options = BuildOptions()
        self.constants = ConstantStore()
        self._where = f"function `{function.name}`"
        self._names: set[str] = set()
        self._buffers: dict[Value, Buffer] = {}
        self._outer = dict(_inner_values(function.bindings))
        self._intermediates: list[Buffer] = []
        self._body: list[Statement] = []
        self._includes: dict[str, None] = {}
        self._sources: dict[str, None] = {}
        self._num_loops = 0
        self.inputs = tuple(self._new(param, BufferRole.INPUT) for param in function.params)
        self.outputs = tuple(self._output(result) for result in function.results)

    def buffer(self, value: Value) -> Buffer:
        """Return the buffer of a value of the function.

        The buffer is the input or output of the function, a constant, or else an intermediate, allocated at the first
        request. Inside a composite, a parameter of the body has the buffer of the operand, and a result of the body has
        the buffer of the composite's result.

        Raises:
            CodegenError: the value is no tensor of known rank.
        """
        while value in self._outer:
            value = self._outer[value]
        if value not in self._buffers:
            role = BufferRole.CONSTANT if isinstance(value, Constant) else BufferRole.INTERMEDIATE
            buffer = self._new(value, role)
            if role is BufferRole.INTERMEDIATE:
                self._intermediates.append(buffer)
        return self._buffers[value]

    def operands(self, binding: Binding) -> tuple[Buffer, ...]:
        """Return the buffers of the operands of an op, or of the operands of all ops inside a composite.

        Results of ops inside the composite are left out. There is a buffer for each operand, in order, so number and
        order depend on the pattern alone: ``dense(x, x)`` has two operands with the same buffer. Constants inside a
        composite are no operands of the composite; here a constant has the same position as a parameter.
        """
        return tuple(map(self.buffer, _read_values(binding)))

    def allocate(self, type_: TensorType, name: str = "buffer") -> Buffer:
        """Return a new intermediate buffer: memory in the planned workspace, with undefined content.

        Args:
            type_: dtype and sizes, over the symbols of the function.
            name: the name in messages and in the C text; made unique.

        Raises:
            CodegenError: the rank is unknown.
        """
        buffer = Buffer(self._unique(name), type_.dtype, self._shape(type_, name), BufferRole.INTERMEDIATE)
        self._intermediates.append(buffer)
        return buffer

    def constant(self, array: npt.ArrayLike, name: str = "constant") -> Buffer:
        """Return the buffer of an array computed during compilation: packed weights, tables."""
        data = np.asarray(array)
        constant = self.constants.add(data)
        if constant not in self._buffers:
            self._buffers[constant] = Buffer(
                self._unique(name), constant.type.dtype, data.shape, BufferRole.CONSTANT, constant
            )
        return self._buffers[constant]

    def call_extern(self, symbol: str, *arguments: Argument, returns_status: bool = False) -> None:
        """Add a call of a C function behind all statements added before.

        Args:
            symbol: the C function. A lowering with headers leaves declarations to the headers. Without headers, a
                function named in no source is declared from the arguments: pointers, ``int64_t`` for sizes, ``double``
                for floats. Pointers to ``bool`` are ``uint8_t *``; to ``float16`` and ``bfloat16``, pointers to
                structures of 16 bits.
            arguments: in the order of the C parameters: buffers to read, parts, ``buffer.written()`` and
                ``buffer.updated()``; sizes; finite floats; other scalars as :class:`CValue`.
            returns_status: whether the function returns an ``int``; a value other than 0 ends the region's call with an
                error. Another result is ignored.

        Raises:
            CodegenError: the symbol is not a C identifier, or an argument has another type or is too large.
        """
        if not symbol.isascii() or c_identifier(symbol) != symbol:
            raise CodegenError(self._where, "calls a symbol with an impossible name", got=repr(symbol))
        self._body.append(ExternCall(symbol, tuple(self._argument(symbol, a) for a in arguments), returns_status))

    def copy(self, source: Buffer | BufferPart, target: Buffer | BufferPart) -> None:
        """Add a copy of all elements of a part to a part of equal size and dtype."""
        parts = replace(_part(source), access=Access.READ), replace(_part(target), access=Access.WRITE)
        self._body.append(Copy(*parts))

    @contextmanager
    def loop(self, extent: Dim) -> Iterator[DimExpr]:
        """Add a loop of the statements added inside the ``with`` block.

        The value is the index, for offsets and arguments inside the block: 0 to ``extent``, exclusive. The rounds run
        in order. An extent may be symbolic.

        Raises:
            CodegenError: the extent is no size.
        """
        if isinstance(extent, bool) or not isinstance(extent, int | DimExpr):
            raise CodegenError(self._where, "adds a loop of an impossible extent", got=repr(extent), expected="a size")
        index = symbol(self._index_name())
        outer, self._body = self._body, []
        try:
            yield index
            outer.append(Loop(str(index), extent, tuple(self._body)))
        finally:
            self._body = outer

    def include(self, header: str) -> None:
        """Add an ``#include`` of a header with the declarations of called functions: ``"cblas.h"``, ``"<cblas.h>"``."""
        name = header if header.startswith(("<", '"')) else f'"{header}"'
        self._includes.setdefault(f"#include {name}")

    def add_source(self, text: str) -> None:
        """Add C text before the calls: prototypes and ``static`` functions. Equal text is added once.

        The lowered functions of a module share a single C file. If the texts of several functions clash, each function
        is compiled in a file of its own.
        """
        self._sources.setdefault(text.strip())

    def link(
        self,
        *,
        libraries: Sequence[str] = (),
        library_dirs: Sequence[str | os.PathLike[str]] = (),
        include_dirs: Sequence[str | os.PathLike[str]] = (),
        objects: Sequence[str | os.PathLike[str]] = (),
        flags: Sequence[str] = (),
    ) -> None:
        """Add files and flags for compiling and linking; see :class:`byoc_core.native.toolchain.BuildOptions`."""
        added = BuildOptions(
            libraries=tuple(libraries),
            library_dirs=_paths(library_dirs),
            include_dirs=_paths(include_dirs),
            extra_objects=_paths(objects),
        )
        merged = merge_linkage([self.options, added])
        new_libraries = tuple(name for name in added.libraries if name not in self.options.libraries)
        self.options = replace(
            merged,
            libraries=(*self.options.libraries, *new_libraries),
            extra_flags=tuple(dict.fromkeys((*self.options.extra_flags, *flags))),
        )

    @property
    def is_unused(self) -> bool:
        """Whether no statement has been added."""
        return not self._body

    def finish(self) -> LoweredFunction:
        """Return the lowered function, checked.

        Outputs for parameters, constants and repeated results get copies.

        Raises:
            CodegenError: see :func:`byoc_core.backend.lowered_checks.check_lowered`.
        """
        sources = map(self.buffer, self.function.results)
        copies = [
            Copy(source.part(0), output.written())
            for source, output in zip(sources, self.outputs, strict=True)
            if source is not output
        ]
        lowered = LoweredFunction(
            self.function,
            self.inputs,
            self.outputs,
            tuple(self._intermediates),
            (*self._body, *copies),
            (*self._includes, *self._sources),
            self.options,
        )
        check_lowered(lowered)
        return lowered

    def _argument(self, called: str, argument: Argument) -> BufferPart | Dim | CValue:
        match argument:
            case Buffer() | BufferPart():
                return _part(argument)
            case bool():
                return CValue(str(int(argument)), "int")
            case int() if argument.bit_length() < 64:
                return argument
            case DimExpr() | CValue():
                return argument
            case float() if math.isfinite(argument):
                return CValue(repr(float(argument)), "double")  # numpy's float64 is a float of another text
        raise CodegenError(
            f"{self._where}, call of `{called}`",
            "has an impossible argument",
            got=f"{argument!r} ({type(argument).__qualname__})",
            expected="a buffer, a part of a buffer, a size of 64 bits, a finite float or a CValue",
        )

    def _output(self, result: Value) -> Buffer:
        """Return the buffer of an output; the result of a binding lives in the first output with the result."""
        is_own = isinstance(result, Var) and result not in self._buffers
        if is_own:
            return self._new(result, BufferRole.OUTPUT)
        name = result.name if isinstance(result, Var) else "constant"
        return Buffer(self._unique(f"{name}_out"), *self._type(result), BufferRole.OUTPUT)

    def _new(self, value: Value, role: BufferRole) -> Buffer:
        name = value.name if isinstance(value, Var) else "constant"
        constant = value if isinstance(value, Constant) else None
        self._buffers[value] = Buffer(self._unique(name), *self._type(value), role, constant)
        return self._buffers[value]

    def _type(self, value: Value) -> tuple[str, tuple[Dim, ...]]:
        name = value.name if isinstance(value, Var) else "constant"
        if not isinstance(value.type, TensorType):
            raise CodegenError(self._where, f"value `{name}` is no tensor", got=value.type)
        return value.type.dtype, self._shape(value.type, name)

    def _shape(self, type_: TensorType, name: str) -> tuple[Dim, ...]:
        if type_.shape is None:
            raise CodegenError(self._where, f"value `{name}` has no known rank", got=type_)
        return type_.shape

    def _unique(self, name: str) -> str:
        base, number = re.sub(r"\W", "_", name) or "buffer", 0
        unique = base
        while unique in self._names:
            number += 1
            unique = f"{base}_{number}"
        self._names.add(unique)
        return unique

    def _index_name(self) -> str:
        used = shape_symbols(dim for buffer in (*self.inputs, *self.outputs) for dim in buffer.shape)
        while True:
            name = f"index_{self._num_loops}"
            self._num_loops += 1
            if name not in used:
                return name


def _inner_values(bindings: Iterable[Binding]) -> Iterator[tuple[Value, Value]]:
    """Yield the parameters and results of the bodies of composites, each with the same value outside."""
    for composite in (binding for binding in bindings if binding.op is COMPOSITE):
        (body,) = composite.regions
        yield from zip(body.params, composite.operands, strict=True)
        own = {result for binding in body.bindings for result in binding.results}
        for inner, outer in zip(body.results, composite.results, strict=True):
            if inner in own:
                own.remove(inner)  # a further result of the same value has memory of its own
                yield inner, outer
        yield from _inner_values(body.bindings)


def _read_values(binding: Binding) -> Iterator[Value]:
    """Yield the operands of an op, or the operands of all ops inside a composite but the results of these ops."""
    if not binding.regions:
        yield from binding.operands
        return
    (body,) = binding.regions
    outer: dict[Value, Value] = dict(zip(body.params, binding.operands, strict=True))
    own = {result for inner in body.bindings for result in inner.results}
    for inner in body.bindings:
        yield from (outer.get(value, value) for value in _read_values(inner) if value not in own)


def _paths(paths: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    return tuple(os.fspath(path) for path in paths)


def _part(argument: Buffer | BufferPart) -> BufferPart:
    return argument.part(0) if isinstance(argument, Buffer) else argument
