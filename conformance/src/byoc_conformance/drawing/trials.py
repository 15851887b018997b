"""Trials of a single op: canonical cases in every dtype, and cases drawn from the op's space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from byoc_core.dims import symbol, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, ConstantStore, Function, OpDef, TensorType, Trait, Value, Var
from byoc_core.ops.cases import OpCase, accepts_dtype, dtypes_of, function_of

from byoc_conformance.drawing.pairwise import cover_pairs
from byoc_conformance.drawing.seeds import generator_of
from byoc_conformance.drawing.spaces import Space, has_indices, has_sizes_among_elements, space_of
from byoc_conformance.drawing.values import draw_operands

__all__ = ["Trial", "canonical_trials", "drawn_trials", "near_trials"]

_OTHER_SIZES = (4, 1, 7, 19, 2, 40)
"""The sizes of symbols in a call, if other than the sizes of the case."""
_MAX_ELEMENTS = 20_000
_ATTEMPTS = 8
_DTYPE_STEP = 5
_COMMON_FLOATS = frozenset({"float64", "float16", "bfloat16"})
_MOST_COMMON = 2
_MAX_NEAR_TRIALS = 16
_CONSTANTS = "constant operands"
_SYMBOLS = "symbolic sizes"
"""Factors of every op, beside the factors of the space; no attribute has these names."""


@dataclass(frozen=True, eq=False)
class Trial:
    """A function of a single op.

    Attributes:
        op: the op.
        case: operands and attributes.
        dtype: of the operands without a fixed dtype in the case.
        constants: the indices of the constant operands.
        symbols: the symbolic sizes of the parameters: ``"none"``; ``"first"``: the size of the first operand's first
            axis, at every occurrence; ``"all"``, with a common symbol for equal sizes; ``"apart"``, with a symbol for
            each axis; ``"last"``: the sizes found only in the last operand.
        name: of the function; level 2 chooses seeds and regimes of values by the name.
        levels: the drawn levels; empty for canonical trials.
    """

    op: OpDef
    case: OpCase
    dtype: str
    constants: frozenset[int] = frozenset()
    symbols: str = "none"
    name: str = "trial"
    levels: Mapping[str, Any] = field(default_factory=dict)

    def function(self, store: ConstantStore, generator: np.random.Generator) -> Function:
        """Return the function; draw the constants, and store them.

        Raises:
            IRTypeError: the op rejects the case.
        """
        arrays = draw_operands(self.op, self.case, self.dtype, "normal", generator) if self.constants else []
        operands: list[Value] = [
            store.add(arrays[index]) if index in self.constants else Var(f"x{index}", type_)
            for index, type_ in enumerate(self.types())
        ]
        return function_of(self.op, operands, self.case.attrs, self.name)[0]

    def types(self) -> tuple[TensorType, ...]:
        """Return the types of the operands; types of constants have no symbols."""
        return self._types

    @cached_property
    def _types(self) -> tuple[TensorType, ...]:
        static = self.case.types(self.dtype)
        if self.symbols == "none":
            return static
        if self.symbols in {"first", "all"}:
            symbolic = replace(self.case, dtype=self.dtype).symbolic_types(everywhere=self.symbols == "all")
        else:
            symbolic = tuple(self._symbolic_type(index, type_) for index, type_ in enumerate(static))
        return tuple(static[index] if index in self.constants else type_ for index, type_ in enumerate(symbolic))

    def _symbolic_type(self, index: int, static: TensorType) -> TensorType:
        shape = self.case.operands[index].shape
        if self.symbols == "apart":
            names = [f"d{index}_{axis}" if size > 1 else "" for axis, size in enumerate(shape)]
        else:
            other_sizes = {size for operand in self.case.operands[:-1] for size in operand.shape}
            is_last = index == len(self.case.operands) - 1
            names = [f"s{size}" if is_last and size > 1 and size not in other_sizes else "" for size in shape]
        dims = tuple(symbol(name) if name else size for name, size in zip(names, shape, strict=True))
        return TensorType(dims, static.dtype)

    def named(self, name: str) -> Trial:
        """Return the trial with another function name."""
        return replace(self, name=name)

    def binding(self) -> Binding:
        """Return the op on parameters alone, with static sizes.

        Raises:
            IRTypeError: the op rejects the case.
        """
        operands = [Var(f"x{index}", type_) for index, type_ in enumerate(self.case.types(self.dtype))]
        return function_of(self.op, operands, self.case.attrs)[1]

    def other_case(self, generator: np.random.Generator) -> OpCase | None:
        """Return a case of the same function with other sizes for the symbols; ``None`` if none is found.

        With index operands, no size shrinks, so indices stay in range.
        """
        if has_sizes_among_elements(self.op):
            return None
        types = self.types()
        names = sorted({name for type_ in types for name in type_.symbols})
        least = {} if not has_indices(self.case) else self._sizes(types)
        for _ in range(_ATTEMPTS if names else 0):
            fitting = {name: [size for size in _OTHER_SIZES if size >= least.get(name, 0)] for name in names}
            if not all(fitting.values()):
                return None
            sizes = {name: int(generator.choice(fitting[name])) for name in names}
            other = replace(self, case=_with_sizes(self.case, types, sizes), symbols="none")
            if other.case != self.case and _is_valid(other):
                return other.case
        return None

    def _sizes(self, types: tuple[TensorType, ...]) -> Mapping[str, int]:
        """Return the sizes of the symbols in the case."""
        return {
            name: size
            for type_, operand in zip(types, self.case.operands, strict=True)
            for dim, size in zip(type_.shape or (), operand.shape, strict=True)
            for name in symbols_of(dim)
        }

    def __str__(self) -> str:
        operands = (
            f"{type_}{' constant' if index in self.constants else ''}" for index, type_ in enumerate(self.types())
        )
        attrs = "".join(f", {name}={value!r}" for name, value in self.case.attrs.items())
        return f"{self.op.name}({', '.join(operands)}{attrs})"


def canonical_trials(op: OpDef) -> Iterator[Trial]:
    """Yield the most common canonical cases of an op, in their own dtypes; cases without elements are left out."""
    cases = [case for case in op.canonical_cases if _num_elements(case)]
    for case in cases[:_MOST_COMMON]:
        yield Trial(op, case, case.dtype)


def drawn_trials(op: OpDef, count: int, seed: int, *, is_dynamic: bool) -> Iterator[Trial]:
    """Yield cases from the space of an op, covering each pair of levels of two factors at least once.

    The constant operands and the symbolic sizes are factors too. All cases come in the op's most common dtype; at
    least one case follows in each other dtype.

    Args:
        op: the op.
        count: the least number, if available; cases beyond the pairs are drawn at random.
        seed: of all random numbers.
        is_dynamic: whether sizes may be symbols.
    """
    space = space_of(op)
    factors: dict[str, Any] = dict(space.factors)
    if len(op.operands) > 1 or any(operand.variadic for operand in op.operands):
        factors[_CONSTANTS] = ("none", "rest", "first")
    if is_dynamic and op.operands:
        factors[_SYMBOLS] = _symbol_levels(op)
    make = _TrialMaker(op, space).make
    # Different levels may make the same function: the last of three axes, and the middle of two.
    trials = {str(trial): trial for trial in cover_pairs(factors, make, generator_of(seed, op.name, "pairs"))}
    for number in range(len(trials), count):
        generator = generator_of(seed, op.name, number)
        drawn = (make(_random_row(factors, generator)) for _ in range(_ATTEMPTS))
        trials |= next(({str(trial): trial} for trial in drawn if trial and str(trial) not in trials), {})
    yield from trials.values()
    yield from _in_other_dtypes(op, list(trials.values()))


def _in_other_dtypes(op: OpDef, trials: Sequence[Trial]) -> Iterator[Trial]:
    """Yield a trial for each other dtype of the op, and for common floats a trial with constants if available."""
    case = op.canonical_cases[0]
    dtypes = dtypes_of(case, op)[1:]
    fixed = [trial for trial in trials if trial.constants and 0 not in trial.constants]
    for turn, dtype in enumerate(dtypes):
        found = {}
        for choice in (trials, fixed) if fixed and dtype in _COMMON_FLOATS else (trials,):
            fitting = (choice[(turn * _DTYPE_STEP + offset) % len(choice)] for offset in range(len(choice)))
            drawn = next((trial for trial in fitting if accepts_dtype(trial.case, op, dtype)), None)
            trial = Trial(op, case, dtype) if drawn is None else replace(drawn, dtype=dtype)
            found[str(trial)] = trial
        yield from found.values()


def near_trials(op: OpDef, claimed: Sequence[Trial], declined: Sequence[Trial]) -> Iterator[Trial]:
    """Yield trials likely to be claimed, covering pairs seen only in declined trials so far.

    Each is a claimed trial modified by the two levels of a pair without a claimed trial: a backend claiming few cases
    of an op is tried on all pairs within these cases.

    Args:
        op: the op.
        claimed: trials claimed by a backend; trials not drawn are ignored.
        declined: trials declined by the backend.
    """
    bases = [trial for trial in claimed if trial.levels]
    shown = {pair for trial in claimed for pair in _pairs_of(trial.levels)}
    turn, max_trials = 0, min(len(claimed) + len(declined), _MAX_NEAR_TRIALS)
    maker = _TrialMaker(op, space_of(op))
    for trial in declined if bases else ():
        for pair in _pairs_of(trial.levels):
            if pair in shown or turn >= max_trials:
                continue
            base = bases[turn % len(bases)]
            turn += 1
            trial_of_pair = maker.make({**base.levels, **{name: trial.levels[name] for name, _ in pair}})
            if trial_of_pair is not None:
                shown.update(_pairs_of(trial_of_pair.levels))
                yield trial_of_pair


def _pairs_of(levels: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    return itertools.combinations([(name, repr(level)) for name, level in levels.items()], 2)


class _TrialMaker:
    """A maker of trials from levels; the types of a case are inferred once for all constants and symbols.

    Args:
        op: the op.
        space: the space of the op.
    """

    def __init__(self, op: OpDef, space: Space) -> None:
        self._op = op
        self._space = space
        self._dtype = op.canonical_cases[0].dtype
        self._cases: dict[tuple[int, ...], tuple[list[Any], OpCase | None]] = {}

    def make(self, levels: Mapping[str, Any]) -> Trial | None:
        """Return the trial of levels of all factors; ``None`` for incompatible levels."""
        case = self._valid_case(levels)
        if case is None:
            return None
        constants = {"none": (), "rest": range(1, len(case.operands)), "first": (0,)}[levels.get(_CONSTANTS, "none")]
        if constants and len(case.operands) == 1:
            return None
        symbols = levels.get(_SYMBOLS, "none")
        trial = Trial(self._op, case, self._dtype, frozenset(constants), symbols, levels=levels)
        return trial if symbols == "none" or _accepts_symbols(trial) else None

    def _valid_case(self, levels: Mapping[str, Any]) -> OpCase | None:
        """Return the case of a row in the op's most common dtype; ``None`` if space or op refuse the case."""
        row = [levels[name] for name in self._space.factors]
        key = tuple(map(id, row))  # equal levels differ in type: True and 1
        if key not in self._cases:
            case = self._space.build(dict(zip(self._space.factors, row, strict=True)))
            case = case and replace(case, dtype=self._dtype)
            is_valid = case is not None and _is_valid(Trial(self._op, case, self._dtype))
            self._cases[key] = row, case if is_valid else None  # the levels live as long as their identities
        return self._cases[key][1]


def _symbol_levels(op: OpDef) -> tuple[str, ...]:
    if op.has_trait(Trait.ELEMENTWISE):
        return ("none", "all", "apart") if len(op.operands) > 1 else ("none", "all")
    return ("none", "first", "all", "last") if len(op.operands) > 1 else ("none", "first", "all")


def _random_row(factors: Mapping[str, Sequence[Any]], generator: np.random.Generator) -> Mapping[str, Any]:
    return {name: levels[int(generator.integers(len(levels)))] for name, levels in factors.items()}


def _accepts_symbols(trial: Trial) -> bool:
    types = trial.types()
    if not any(type_.symbols for type_ in types):
        return False
    try:
        function_of(trial.op, [Var(f"x{index}", type_) for index, type_ in enumerate(types)], trial.case.attrs)
    except IRTypeError:
        return False
    return True


def _is_valid(trial: Trial) -> bool:
    try:
        binding = trial.binding()
    except IRTypeError:
        return False
    elements = [getattr(result.type, "num_elements", 0) for result in binding.results]
    return all(not isinstance(count, int) or 0 < count <= _MAX_ELEMENTS for count in elements)


def _with_sizes(case: OpCase, types: tuple[TensorType, ...], sizes: Mapping[str, int]) -> OpCase:
    """Return the case with these sizes in place of the symbols of the types."""
    operands = []
    for type_, operand in zip(types, case.operands, strict=True):
        dims = zip(type_.shape or (), operand.shape, strict=True)
        shape = tuple(next((sizes[name] for name in symbols_of(dim)), size) for dim, size in dims)
        operands.append(replace(operand, shape=shape))
    return replace(case, operands=tuple(operands))


def _num_elements(case: OpCase) -> int:
    return min((math.prod(operand.shape) for operand in case.operands), default=1)
