"""Trials of one op: its canonical cases in every dtype, and variations of them, drawn from its schema."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from byoc_core.dtypes import all_dtypes
from byoc_core.errors import IRTypeError
from byoc_core.ir import AttrKind, AttrSpec, Binding, ConstantStore, Function, OpDef, Trait, Value, Var
from byoc_core.ops.cases import OpCase, function_of, op_cases

from byoc_conformance.drawing.seeds import generator_of
from byoc_conformance.drawing.values import draw_operands

__all__ = ["Trial", "canonical_trials", "drawn_trials"]

_SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 33)
_MAX_ELEMENTS = 20_000
_OTHER_DTYPES = 2
_ATTEMPTS = 8


@dataclass(frozen=True, eq=False)
class Trial:
    """One function of one op.

    Attributes:
        op: the op.
        case: operands and attributes.
        dtype: of the operands whose dtype the case leaves open.
        constants: the operands that are constants, by place.
        name: of the function.
    """

    op: OpDef
    case: OpCase
    dtype: str
    constants: frozenset[int] = frozenset()
    name: str = "trial"

    def function(self, store: ConstantStore, generator: np.random.Generator) -> Function:
        """Gives the function; constants are drawn, and stored.

        Raises:
            IRTypeError: the op does not take the case.
        """
        arrays = draw_operands(self.op, self.case, self.dtype, "normal", generator) if self.constants else []
        operands: list[Value] = [
            store.add(arrays[index]) if index in self.constants else Var(f"x{index}", type_)
            for index, type_ in enumerate(self.case.types(self.dtype))
        ]
        return function_of(self.op, operands, self.case.attrs, self.name)[0]

    def named(self, name: str) -> Trial:
        """Gives the trial with a function of another name."""
        return replace(self, name=name)

    def binding(self) -> Binding:
        """Gives the op on parameters alone.

        Raises:
            IRTypeError: the op does not take the case.
        """
        operands = [Var(f"x{index}", type_) for index, type_ in enumerate(self.case.types(self.dtype))]
        return function_of(self.op, operands, self.case.attrs)[1]

    def __str__(self) -> str:
        types = self.case.types(self.dtype)
        operands = (f"{type_}{' constant' if index in self.constants else ''}" for index, type_ in enumerate(types))
        attrs = "".join(f", {name}={value!r}" for name, value in self.case.attrs.items())
        return f"{self.op.name}({', '.join(operands)}{attrs})"


def canonical_trials(op: OpDef) -> Iterator[Trial]:
    """Yields all canonical cases of an op in their own dtype, and the first two in every other that they are taken in.

    The first case comes also with all operands but the first constant, in every dtype. Cases without elements are left
    out.
    """
    cases = [case for case in op_cases()[op.name] if _num_elements(case)]
    for case in cases:
        yield Trial(op, case, case.dtype)
    own = {case.dtype for case in cases}
    for number, case in enumerate(cases[:_OTHER_DTYPES]):
        for dtype in case.dtypes(op):
            if dtype not in own:
                yield Trial(op, case, dtype)
            if number == 0 and len(case.operands) > 1:
                yield Trial(op, case, dtype, frozenset(range(1, len(case.operands))))


def drawn_trials(op: OpDef, count: int, seed: int) -> Iterator[Trial]:
    """Yields variations of the canonical cases: other sizes, attributes, broadcasting, dtypes, and constants.

    Every second one is of the case's own dtype. What the type rule refuses is drawn again a few times, then left out.

    Args:
        op: the op.
        count: how many, at most.
        seed: of all random numbers.
    """
    cases = [case for case in op_cases()[op.name] if _num_elements(case)]
    for number in range(count):
        generator = generator_of(seed, op.name, number)
        drawn = (_draw(op, cases, generator, is_own_dtype=number % 2 == 0) for _ in range(_ATTEMPTS))
        trial = next((trial for trial in drawn if _fits(trial)), None)
        if trial is not None:
            yield trial


def _fits(trial: Trial) -> bool:
    try:
        binding = trial.binding()
    except IRTypeError:
        return False
    elements = [getattr(result.type, "num_elements", 0) for result in binding.results]
    return all(not isinstance(count, int) or 0 < count <= _MAX_ELEMENTS for count in elements)


def _num_elements(case: OpCase) -> int:
    return min((math.prod(operand.shape) for operand in case.operands), default=1)


def _draw(op: OpDef, cases: list[OpCase], generator: np.random.Generator, *, is_own_dtype: bool) -> Trial:
    case = cases[int(generator.integers(len(cases)))]
    dtypes = case.dtypes(op)
    dtype = case.dtype if is_own_dtype else dtypes[int(generator.integers(len(dtypes)))]
    kind = int(generator.integers(4))
    if kind != 0:
        case = _resized(case, generator)
    if kind == 1 and Trait.ELEMENTWISE in op.traits and len(case.operands) > 1:
        case = _broadcast(case, generator)
    # Indices fit one axis of one case: another axis would put them out of range.
    if kind in (0, 2) and not _has_indices(case):
        case = replace(case, attrs=_other_attrs(op, case.attrs, generator))
    constants = frozenset[int]()
    if len(case.operands) > 1 and generator.random() < 0.4:
        is_first = generator.random() < 0.2
        constants = frozenset({0}) if is_first else frozenset(range(1, len(case.operands)))
    return Trial(op, case, dtype, constants)


def _has_indices(case: OpCase) -> bool:
    return any(operand.dtype is not None and operand.dtype.startswith("int") for operand in case.operands)


def _resized(case: OpCase, generator: np.random.Generator) -> OpCase:
    """Gives the case with other sizes in place of some, equal ones changed alike.

    Where there are indices, none is smaller, so that they stay in range.
    """
    sizes = sorted({size for operand in case.operands for size in operand.shape if size > 1})
    changes = {}
    for size in sizes:
        fitting = [new for new in _SIZES if new >= size] if _has_indices(case) else list(_SIZES)
        if fitting and generator.random() < 0.7:
            changes[size] = int(generator.choice(fitting))
    operands = (
        replace(operand, shape=tuple(changes.get(size, size) for size in operand.shape)) for operand in case.operands
    )
    return replace(case, operands=tuple(operands))


def _broadcast(case: OpCase, generator: np.random.Generator) -> OpCase:
    """Gives the case with axes of size 1, or without leading axes, in one operand."""
    chosen = int(generator.integers(len(case.operands)))
    operands = list(case.operands)
    shape = operands[chosen].shape
    shape = tuple(1 if generator.random() < 0.4 else size for size in shape)[int(generator.integers(len(shape) + 1)) :]
    operands[chosen] = replace(operands[chosen], shape=shape)
    return replace(case, operands=tuple(operands))


def _other_attrs(op: OpDef, attrs: Mapping[str, object], generator: np.random.Generator) -> Mapping[str, object]:
    """Gives the attributes with another value of one or two of them."""
    changed = dict(op.normalise_attrs(attrs))
    for _ in range(int(generator.integers(1, 3))):
        if op.attrs:
            spec = op.attrs[int(generator.integers(len(op.attrs)))]
            changed[spec.name] = _other_value(spec, changed[spec.name], generator)
    return changed


def _other_value(spec: AttrSpec, value: Any, generator: np.random.Generator) -> Any:
    if spec.choices:
        return spec.choices[int(generator.integers(len(spec.choices)))]
    if spec.kind is AttrKind.BOOL:
        return bool(generator.integers(2))
    if spec.kind is AttrKind.INT:
        return int(generator.integers(-2, 4))
    if spec.kind is AttrKind.FLOAT:
        # Numbers that every dtype holds, so that a threshold is the same in all.
        return float(generator.choice([0.25, 0.5, 1.0, 1.5, 2.0]))
    if spec.kind is AttrKind.DTYPE:
        return str(generator.choice(all_dtypes()))
    if spec.kind is AttrKind.INTS and value is not None:
        return tuple(max(0, item + int(generator.integers(-1, 2))) for item in value)
    return value
