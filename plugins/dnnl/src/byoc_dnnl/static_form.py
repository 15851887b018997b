"""A function at the sizes of a call: symbols are solved from the shapes of the arguments, and replaced everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import isqrt, prod
from types import MappingProxyType

import numpy as np
from byoc_core.dims import DimExpr, evaluate
from byoc_core.errors import ArtifactError, CallError, IRTypeError
from byoc_core.runtime import argument_places, bind_symbols
from byoc_core.runtime.graph import check_function_types
from byoc_core.runtime.graph.document import GraphAttr, GraphFunction, GraphNode, GraphTensor, attr_symbols
from byoc_core.runtime.module import TensorSpec

__all__ = ["Shapes", "at_sizes", "print_call", "sample_forms", "solve_sizes", "static_shapes", "symbols_in"]

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all arguments of a function: inputs, then outputs."""

_SAMPLES = ((2, 2), (31, 5), (257, 11))
"""Lower limits for the trial sizes of a function with symbols: for primes, and for primes multiplied by 32."""

_LARGE_SAMPLES = ((2053, 128), (16411, 1024))
"""Limits of sizes tried if some tensor is empty at all others: convolutions of sound need thousands of samples."""

_MULTIPLE = 32
"""A factor of image sizes. Networks that halve images and join the halves again accept multiples of this factor."""

_ELEMENT = np.zeros((), np.uint8)


def symbols_in(function: GraphFunction) -> frozenset[str]:
    """Return the symbols in the shapes and attributes of a function."""
    dims = (*(value.shape for value in function.values), *(tuple(node.attrs.values()) for node in function.nodes))
    return frozenset[str]().union(*map(attr_symbols, dims))


def static_shapes(function: GraphFunction) -> Shapes:
    """Return the shapes of the arguments of a function without symbols."""
    signature = function.signature
    shapes = (spec.shape for spec in (*signature.inputs, *signature.outputs))
    return tuple(tuple(dim for dim in shape if isinstance(dim, int)) for shape in shapes)


def solve_sizes(function: GraphFunction, shapes: Shapes) -> Mapping[str, int]:
    """Solve the symbols determined by the shapes of the arguments.

    Raises:
        CallError: the shapes differ from the declared shapes; names the argument.
        IRTypeError: a declared size cannot be computed or is not determined, or a shape is larger than any memory.
    """
    where, signature = f"graph function `{function.name}`", function.signature
    if any(prod(shape) > sys.maxsize for shape in shapes):
        raise IRTypeError(where, "has a tensor larger than any memory", got=shapes)
    arrays = [np.broadcast_to(_ELEMENT, shape) for shape in shapes]  # shapes with no memory behind them
    num_inputs = len(signature.inputs)
    sizes: dict[str, int] = {}
    for role, specs, role_arrays in (
        ("input", signature.inputs, arrays[:num_inputs]),
        ("output", signature.outputs, arrays[num_inputs:]),
    ):
        labels = argument_places(where, role, specs)
        bind_symbols(specs, role_arrays, labels, sizes=sizes)
    # Sizes left open until a later shape was known.
    for spec, shape in zip((*signature.inputs, *signature.outputs), shapes, strict=True):
        expected = tuple(evaluate(dim, sizes) for dim in spec.shape)
        if shape != expected:
            raise CallError(f"{where}, argument `{spec.name}`", "has another shape", got=shape, expected=expected)
    return sizes


def print_call(shapes: Shapes, number: int) -> str:
    """Return shapes and a number of threads as text for people: ``[2, 3], 1 thread``."""
    return ", ".join([*(str(list(shape)) for shape in shapes), f"{number} thread{'' if number == 1 else 's'}"])


def sample_forms(function: GraphFunction) -> list[GraphFunction]:
    """Return a function at representative sizes: small, middling and large, different for all symbols.

    A function without symbols is returned unchanged. Sizes are primes, or multiples of 32 if primes do not fit one
    another, like the halves of an image. Sizes with an empty tensor are omitted, perhaps all: an empty tensor reveals
    nothing about other sizes. The same for sizes too small for the windows of the function.

    Raises:
        IRTypeError: a size cannot be computed if all symbols differ.
        ArtifactError: a node cannot produce its declared results at the sizes.
    """
    symbols = sorted(symbols_in(function))
    if not symbols:
        return [function]
    return _full_forms(function, symbols, _SAMPLES) or _full_forms(function, symbols, _LARGE_SAMPLES)


def _full_forms(
    function: GraphFunction, symbols: Sequence[str], samples: Sequence[tuple[int, int]]
) -> list[GraphFunction]:
    forms = (_fitting_form(function, symbols, *starts) for starts in samples)
    return [form for form in forms if _is_full(form)]


def _fitting_form(function: GraphFunction, symbols: Sequence[str], start: int, multiples_start: int) -> GraphFunction:
    """Return a function at primes, or at multiples of 32 if the sizes do not fit one another at primes."""
    primes = _primes_from(start)
    multiples = (_MULTIPLE * prime for prime in _primes_from(multiples_start))
    try:
        return _checked_form(function, dict(zip(symbols, primes, strict=False)))
    except (ArtifactError, IRTypeError) as error:
        try:
            return _checked_form(function, dict(zip(symbols, multiples, strict=False)))
        except (ArtifactError, IRTypeError):
            raise error from None


def _checked_form(function: GraphFunction, sizes: Mapping[str, int]) -> GraphFunction:
    form = at_sizes(function, sizes)
    if _is_full(form):
        check_function_types(form, f"graph function `{function.name}`")
    return form


def _is_full(function: GraphFunction) -> bool:
    """Return whether all tensors have elements."""
    return all(_min_size(value) > 0 for value in function.values)


def at_sizes(function: GraphFunction, sizes: Mapping[str, int]) -> GraphFunction:
    """Replace the symbols of a function by sizes, in shapes and attributes; the nodes of the result have no bodies.

    Raises:
        IRTypeError: a size cannot be computed.
    """
    if not symbols_in(function):
        return function
    inputs = tuple(TensorSpec(spec.name, spec.dtype, _shape(spec.shape, sizes)) for spec in function.inputs)
    nodes = tuple(
        GraphNode(
            node.op,
            node.inputs,
            tuple(GraphTensor(tensor.dtype, _shape(tensor.shape, sizes)) for tensor in node.outputs),
            MappingProxyType({name: _attr(value, sizes) for name, value in node.attrs.items()}),
            origin=node.origin,
        )
        for node in function.nodes
    )
    return GraphFunction(function.name, inputs, function.constants, nodes, function.outputs)


def _min_size(value: GraphTensor) -> int:
    return min((dim for dim in value.shape if isinstance(dim, int)), default=1)


def _primes_from(start: int) -> Iterator[int]:
    return (number for number in count(start) if all(number % factor for factor in range(2, isqrt(number) + 1)))


def _shape(shape: Sequence[int | DimExpr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(dim, sizes) for dim in shape)


def _attr(value: GraphAttr, sizes: Mapping[str, int]) -> GraphAttr:
    if isinstance(value, DimExpr):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_attr(item, sizes) for item in value)
    return value
