"""The laws of views: memory named by views, and calls accepting views."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from byoc_core.dims import Dim, exact_div, product, shape_symbols
from byoc_core.dtypes import dtype_info
from byoc_core.errors import ProgramError
from byoc_core.opset.layout import Layout, unproved_sizes
from byoc_core.vm.footprints import Footprints
from byoc_core.vm.instructions import Builtin, Call, CallKind
from byoc_core.vm.program import Program, RegisterKind, VMFunction

__all__ = ["aliased_operands", "check_memory", "check_views", "is_strided"]

_BASES = (RegisterKind.PARAM, RegisterKind.RESULT, RegisterKind.CONSTANT, RegisterKind.TENSOR)
_READ_ONLY = (RegisterKind.PARAM, RegisterKind.CONSTANT)


def check_views(program: Program, function: VMFunction) -> None:
    """Check the declarations of a function's views; dtypes and shapes are valid already.

    Raises:
        ProgramError: the base of a view is no register owning memory, or a view has another dtype, is not aligned, is
            not provably inside its base, or may name an element twice.
    """
    registers = program.registers(function) if function.views else ()
    input_symbols = function.input_symbols
    sizes = _sizes_of_calls(function)
    for index, view in enumerate(function.views):
        location = f"function `{function.name}`, register w{index}"
        base = registers[view.base] if 0 <= view.base < function.first_view else None
        if base is None or base.kind not in _BASES or not shape_symbols(base.shape) <= input_symbols:
            raise ProgramError(
                location,
                "the base of the view owns no memory of known size",
                got=view.base if base is None else base,
                expected="a param, result, constant or planned tensor",
            )
        if base.dtype != view.dtype:
            raise ProgramError(location, f"has another dtype than the base {base}", got=view.dtype, expected=base.dtype)
        if view.strides is not None and len(view.strides) != len(view.shape):
            raise ProgramError(location, "has another number of strides than axes", got=len(view.strides))
        itemsize = dtype_info(view.dtype).itemsize
        if exact_div(view.offset, itemsize) is None:
            raise ProgramError(location, "is not aligned", got=view.offset, expected=f"a multiple of {itemsize} bytes")
        _check_extent(location, view.layout, base.shape, sizes)


def _check_extent(location: str, layout: Layout, base: tuple[Dim, ...], sizes: tuple[Dim, ...]) -> None:
    if any(isinstance(stride, int) and stride < 0 for stride in layout.strides):
        raise ProgramError(location, "has a negative stride", got=_list(layout.strides))
    if not layout.fits(base, sizes):
        raise ProgramError(
            location,
            "does not provably lie inside the base",
            got=f"{layout.extent} elements from {layout.offset}",
            expected=f"at most {product(base)} elements",
        )
    if not layout.without_repeats.is_injective(sizes):
        raise ProgramError(location, "may name the same element twice", got=f"strides {_list(layout.strides)}")


def is_strided(function: VMFunction, register: int) -> bool:
    """Return whether a register is not provably C-contiguous."""
    return register >= function.first_view and not function.views[register - function.first_view].is_compact


def aliased_operands(footprints: Footprints, call: Call) -> list[tuple[int, int]]:
    """Return the positions of all pairs of a result and an argument of a call with shared bytes."""
    results = [frozenset(footprints.of(number)) for number in call.results]
    return [
        (position, number)
        for number, arg in enumerate(call.args)
        for position, atoms in enumerate(results)
        if not atoms.isdisjoint(footprints.of(arg))
    ]


def check_memory(program: Program, function: VMFunction, footprints: Footprints) -> None:
    """Check every call: written memory has no other use, and only externs and copies take strided views.

    Raises:
        ProgramError: a call writes bytes twice, or writes bytes of its own arguments (an extern may do so if a result
            aliases an argument element by element), writes read-only memory or repeated elements, or takes strides
            without being an extern filling buffers or a copy.
    """
    registers = program.registers(function)
    sizes = _sizes_of_calls(function)
    first_view = function.first_view
    for index, call in enumerate(function.code):
        if not isinstance(call, Call):
            continue
        where = f"function `{function.name}`, instruction {index}"
        written: set[int] = set()
        for number in call.results:
            if registers[footprints.owners[number]].kind in _READ_ONLY:
                raise ProgramError(where, f"register {registers[number]} is read-only")
            view = function.views[number - first_view] if number >= first_view else None
            if view is not None and not view.layout.is_injective(sizes):
                raise ProgramError(where, f"register {registers[number]} has repeated elements and cannot be written")
            if not written.isdisjoint(footprints.of(number)):
                raise ProgramError(where, f"register {registers[number]} is written while in use")
            written.update(footprints.of(number))
        for number in (arg for arg in call.args if not written.isdisjoint(footprints.of(arg))):
            aliases = [result for result in call.results if footprints.is_elementwise_alias(result, number)]
            if call.kind is not CallKind.EXTERN or not aliases:
                overlapping = aliases or [r for r in call.results if footprints.owners[r] == footprints.owners[number]]
                raise ProgramError(where, f"register {registers[overlapping[0]]} is written while in use")
        if call.kind is not CallKind.EXTERN and (call.kind, call.callee) != (CallKind.BUILTIN, Builtin.COPY):
            for number in (*call.args, *call.results):
                if is_strided(function, number):
                    raise ProgramError(where, f"a {call.kind.mnemonic} takes no strides", got=registers[number])


def _sizes_of_calls(function: VMFunction) -> tuple[Dim, ...]:
    """Return sizes known to be zero or more while the code runs, because any other call fails earlier."""
    if not function.views:
        return ()
    shapes = chain((param.shape for param in function.params), (tensor.shape for tensor in function.tensors))
    return unproved_sizes(dict.fromkeys(chain.from_iterable(shapes)))


def _list(dims: Iterable[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"
