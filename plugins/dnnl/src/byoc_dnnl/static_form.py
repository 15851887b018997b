"""A function at the sizes of a call: symbols are solved from the shapes of the arguments, and replaced everywhere."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import count
from math import isqrt, prod
from types import MappingProxyType

import numpy as np
from byoc_core.dims import DimExpr, evaluate
from byoc_core.errors import ArtifactError, CallError, IRTypeError
from byoc_core.runtime import argument_places, bind_symbols
from byoc_core.runtime.graph import check_function_types
from byoc_core.runtime.graph.document import (
    GraphAttr,
    GraphConstant,
    GraphFunction,
    GraphNode,
    GraphTensor,
    attr_symbols,
)
from byoc_core.runtime.module import TensorSpec

from byoc_dnnl.calls import Wiring, numbered

__all__ = ["Shapes", "StaticForms", "print_call", "sample_forms", "solve_sizes", "static_shapes", "symbols_in"]

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
    forms = StaticForms(function)
    if not forms.symbols:
        return [function]
    return _full_forms(forms, _SAMPLES) or _full_forms(forms, _LARGE_SAMPLES)


def _full_forms(forms: StaticForms, samples: Sequence[tuple[int, int]]) -> list[GraphFunction]:
    return [form for form in (_fitting_form(forms, *starts) for starts in samples) if _is_full(form)]


def _fitting_form(forms: StaticForms, start: int, multiples_start: int) -> GraphFunction:
    """Return a function at primes, or at multiples of 32 if the sizes do not fit one another at primes."""
    primes, symbols = _primes_from(start), sorted(forms.symbols)
    multiples = (_MULTIPLE * prime for prime in _primes_from(multiples_start))
    try:
        return _checked_form(forms, dict(zip(symbols, primes, strict=False)))
    except (ArtifactError, IRTypeError) as error:
        try:
            return _checked_form(forms, dict(zip(symbols, multiples, strict=False)))
        except (ArtifactError, IRTypeError):
            raise error from None


def _checked_form(forms: StaticForms, sizes: Mapping[str, int]) -> GraphFunction:
    form = forms.at(sizes)
    if _is_full(form):
        check_function_types(form, f"graph function `{form.name}`")
    return form


def _is_full(function: GraphFunction) -> bool:
    """Return whether all tensors have elements."""
    return all(_min_size(value) > 0 for value in function.values)


class StaticForms:
    """The forms of a function at sizes.

    Everything independent of the sizes is found once. Equal types, and equal attributes, are one object in a form, also
    of nodes of different layers: checks of types see each kind of node once. Types and attributes without symbols are
    the same objects in all forms.

    Args:
        function: the function; the nodes have no bodies.

    Attributes:
        symbols: the symbols of the function.
        wiring: the wiring of all forms.
    """

    def __init__(self, function: GraphFunction) -> None:
        self._function = function
        self.symbols = symbols_in(function)
        self._tensors: dict[GraphTensor, int] = {}
        self._attrs: dict[Hashable, int] = {}
        self._distinct_attrs: list[Mapping[str, GraphAttr]] = []
        self._constants = [self._number_of(constant.tensor) for constant in function.constants]
        inputs = [self._number_of(GraphTensor(spec.dtype, spec.shape)) for spec in function.inputs]
        self._nodes = [
            (node, tuple([self._number_of(tensor) for tensor in node.outputs]), self._number_of_attrs(node.attrs))
            for node in function.nodes
        ]
        values = [*inputs, *self._constants, *(number for _, outputs, _ in self._nodes for number in outputs)]
        keys = [
            (node.op, attrs, tuple([values[id_] for id_ in node.inputs]), outputs)
            for node, outputs, attrs in self._nodes
        ]
        self.wiring = Wiring(function, numbered(keys))
        self._open_tensors = [tensor for tensor in self._tensors if attr_symbols(tensor.shape)]
        self._static_attrs = [
            attrs if not attr_symbols(tuple(attrs.values())) else None for attrs in self._distinct_attrs
        ]

    def _number_of(self, tensor: GraphTensor) -> int:
        return self._tensors.setdefault(tensor, len(self._tensors))

    def _number_of_attrs(self, attrs: Mapping[str, GraphAttr]) -> int:
        number = self._attrs.setdefault(tuple((name, _key(attrs[name])) for name in sorted(attrs)), len(self._attrs))
        if number == len(self._distinct_attrs):
            self._distinct_attrs.append(attrs)
        return number

    def at(self, sizes: Mapping[str, int]) -> GraphFunction:
        """Replace the symbols of the function by sizes, in shapes and attributes.

        Raises:
            IRTypeError: a size cannot be computed.
        """
        function = self._function
        if not self.symbols:
            return function
        found = {tensor: GraphTensor(tensor.dtype, _shape(tensor.shape, sizes)) for tensor in self._open_tensors}
        tensors = [found.get(tensor, tensor) for tensor in self._tensors]
        attrs = [
            static or MappingProxyType({name: _attr(value, sizes) for name, value in attrs.items()})
            for attrs, static in zip(self._distinct_attrs, self._static_attrs, strict=True)
        ]
        inputs = tuple([TensorSpec(spec.name, spec.dtype, _shape(spec.shape, sizes)) for spec in function.inputs])
        constants = tuple(
            [
                GraphConstant(constant.digest, tensors[number])
                for constant, number in zip(function.constants, self._constants, strict=True)
            ]
        )
        nodes = tuple(
            [
                GraphNode(
                    node.op,
                    node.inputs,
                    tuple([tensors[number] for number in outputs]),
                    attrs[number_of_attrs],
                    origin=node.origin,
                )
                for node, outputs, number_of_attrs in self._nodes
            ]
        )
        return GraphFunction(function.name, inputs, constants, nodes, function.outputs)


def _min_size(value: GraphTensor) -> int:
    return min((dim for dim in value.shape if isinstance(dim, int)), default=1)


def _primes_from(start: int) -> Iterator[int]:
    return (number for number in count(start) if all(number % factor for factor in range(2, isqrt(number) + 1)))


def _key(value: GraphAttr) -> Hashable:
    """Return a key of an attribute's value: 1, 1.0 and true differ, and 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple([_key(item) for item in value])
    return type(value), value.hex() if isinstance(value, float) else value


def _shape(shape: Sequence[int | DimExpr], sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple([dim if isinstance(dim, int) else evaluate(dim, sizes) for dim in shape])


def _attr(value: GraphAttr, sizes: Mapping[str, int]) -> GraphAttr:
    if isinstance(value, DimExpr):
        return evaluate(value, sizes)
    if isinstance(value, tuple):
        return tuple(_attr(item, sizes) for item in value)
    return value
