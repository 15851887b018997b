"""Small functions asked of a backend: canonical cases of ops, instances of patterns, the backend's own ops.

The promises of the level choose among attempts of different cost: :func:`sample` for questions of claims,
:func:`all_cases` without an answer there, :func:`few_claims` for compiled modules and rewriting hooks. Each of these
attempts is made once per subject and shared by the tests.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, cast

import numpy as np
from byoc_core.dtypes import computing_dtypes
from byoc_core.errors import IRTypeError
from byoc_core.ir import ConstantStore, Function, IRModule, OpDef, TensorType, Trait, Value, Var, print_function
from byoc_core.lint import find_instances
from byoc_core.ops.cases import OpCase, dtypes_of, function_of, new_function
from byoc_core.transform import clone_function

from byoc_conformance.outcome import NotCoveredError
from byoc_conformance.subject import Attempt, Subject

__all__ = [
    "AttemptedCases",
    "CaseFunction",
    "all_cases",
    "all_dtypes_once",
    "attempt_of",
    "case_functions",
    "cases_of_few_claims",
    "few_claims",
    "format_reasons",
    "own_op_functions",
    "pattern_functions",
    "sample",
    "variants_in_all_dtypes",
]

Kind = Literal["static", "symbolic", "constants"]

_SAMPLED_CASES = 2
_SAMPLED_INSTANCES = 3
_INSTANCES_ALIKE = 1
_VARIED_CASES = 1
_OWN_OP_SHAPES = ((2, 3), (2, 3, 4), (2, 3, 4, 5), (3,), ())


@dataclass(frozen=True, eq=False, slots=True)
class CaseFunction:
    """A function to ask about.

    Attributes:
        subject: the op's name, or the pattern's.
        dtype: the varied dtype of the case.
        kind: whether sizes are symbols, and whether all operands but the first are constants.
        function: of the op or the pattern's ops alone.
        case: the canonical case, for functions of a core op.
    """

    subject: str
    dtype: str
    kind: Kind
    function: Function
    case: OpCase | None = None

    @property
    def is_most_common(self) -> bool:
        """Whether this is a case in the most common dtype, without symbols and constants."""
        return self.case is None or (self.kind == "static" and self.dtype == self.case.dtype)

    def __str__(self) -> str:
        return print_function(self.function)


def format_reasons(attempt: Attempt, names: Iterable[str]) -> str:
    """Return the subject's first reason for not claiming functions, as text."""
    reasons = (reason for name in names for reason in attempt.reasons(name))
    return next((f"{reason.code}: {reason.text}" for reason in reasons), "no reason was given")


AttemptedCases = tuple[Attempt, dict[str, CaseFunction]]
"""The attempt at a module, and the case functions by name."""


def case_functions(op: OpDef, constants: ConstantStore, *, limit: int | None = None) -> Iterator[CaseFunction]:
    """Yield an op's canonical cases; the first in all dtypes, with symbols and with constants too.

    Args:
        op: an op with cases.
        constants: receives the constants of the functions.
        limit: the number of cases, in order from the most common to the rarest.
    """
    for index, case in enumerate(op.canonical_cases[:limit]):
        for dtype in dtypes_of(case, op) if index == 0 else (case.dtype,):
            yield CaseFunction(op.name, dtype, "static", new_function(op, case.types(dtype), case.attrs)[0], case)
        if index < _VARIED_CASES:
            yield from _variants(op, case, constants)


def _variants(op: OpDef, case: OpCase, constants: ConstantStore) -> Iterator[CaseFunction]:
    """Yield a case with constants behind the first operand, and with symbols, if permitted by the op."""
    if len(case.operands) > 1:
        arrays = case.arrays(np.random.default_rng(0))
        operands: list[Value] = [Var("x0", case.types()[0]), *map(constants.add, arrays[1:])]
        yield from _function(op, operands, case, "constants")
    symbolic = dict.fromkeys(case.symbolic_types(everywhere=everywhere) for everywhere in (False, True))
    for types in symbolic:
        if any(type_.symbols for type_ in types):
            yield from _function(op, _parameters(types), case, "symbolic")


def _function(op: OpDef, operands: Sequence[Value], case: OpCase, kind: Kind) -> Iterator[CaseFunction]:
    """Yield the function, unless the op rejects the operands."""
    try:
        function, _ = function_of(op, operands, case.attrs)
    except IRTypeError:
        return
    yield CaseFunction(op.name, case.dtype, kind, function, case)


def _parameters(types: Iterable[TensorType]) -> tuple[Var, ...]:
    return tuple(Var(f"x{index}", type_) for index, type_ in enumerate(types))


def pattern_functions(subject: Subject, constants: ConstantStore) -> Iterator[CaseFunction]:
    """Yield functions matched by the subject's patterns: a few for each reading and dtype."""
    for pattern in subject.handle.patterns():
        count: Counter[tuple[str, str, str]] = Counter()
        for instance in find_instances(pattern.pattern, subject.ops).found:
            key = (instance.reading, instance.kind, instance.dtype)
            count[key] += 1
            if count[key] > _INSTANCES_ALIKE:
                continue
            for array in instance.module.constants.values():
                constants.add(array)
            function = clone_function(instance.module["main"])
            yield CaseFunction(pattern.name, instance.dtype, cast("Kind", instance.kind), function)


def own_op_functions(subject: Subject) -> Iterator[CaseFunction]:
    """Yield functions of the subject's own ops: canonical cases, or guesses for a single operand or several alike."""
    for op in subject.handle.ops():
        if op.canonical_cases:
            yield from (item for item in case_functions(op, ConstantStore(), limit=1) if item.kind == "static")
            continue
        if len(op.operands) != 1 and not op.has_trait(Trait.ELEMENTWISE):
            continue
        for shape, dtype in itertools.product(_OWN_OP_SHAPES, computing_dtypes()):
            with contextlib.suppress(IRTypeError):
                function, _ = new_function(op, [TensorType(shape, dtype)] * len(op.operands), {})
                yield CaseFunction(op.name, dtype, "static", function)


def attempt_of(subject: Subject, items: Iterable[CaseFunction], constants: ConstantStore) -> AttemptedCases:
    """Return the attempt at a module of all these functions, and the functions by name in the module."""
    named = {f"case_{number}": item for number, item in enumerate(items)}
    functions = {name: replace(item.function, name=name) for name, item in named.items()}
    return subject.attempt(IRModule(functions, constants)), named


@cache
def all_cases(subject: Subject) -> AttemptedCases:
    """Return the attempt at all canonical cases of all ops, and all instances of patterns."""
    constants = ConstantStore()
    items = [item for op in subject.ops_with_cases for item in case_functions(op, constants)]
    return attempt_of(subject, [*items, *pattern_functions(subject, constants)], constants)


@cache
def all_dtypes_once(subject: Subject) -> AttemptedCases:
    """Return the attempt at the most common case of each op, in all dtypes of the op."""
    constants = ConstantStore()
    items = (item for op in subject.ops_with_cases for item in case_functions(op, constants, limit=1))
    return attempt_of(subject, [item for item in items if item.kind == "static"], constants)


@cache
def variants_in_all_dtypes(subject: Subject) -> AttemptedCases:
    """Return the attempt at the most common case of each op with constants and with symbols, in all dtypes."""
    constants = ConstantStore()
    items: list[CaseFunction] = []
    for op in subject.ops_with_cases:
        case = op.canonical_cases[0]
        for dtype in dtypes_of(case, op):
            items += _variants(op, replace(case, dtype=dtype), constants)
    return attempt_of(subject, items, constants)


@cache
def sample(subject: Subject) -> AttemptedCases:
    """Return the attempt at some cases of all ops, and some instances of all patterns."""
    constants = ConstantStore()
    items: list[CaseFunction] = []
    for op in subject.ops_with_cases:
        found = case_functions(op, constants, limit=_SAMPLED_CASES)
        first = {(item.kind, id(item.case)): item for item in reversed(list(found))}
        items += reversed(first.values())
    for _, instances in itertools.groupby(pattern_functions(subject, constants), lambda item: item.subject):
        items += itertools.islice(instances, _SAMPLED_INSTANCES)
    return attempt_of(subject, items, constants)


def few_claims(subject: Subject) -> Attempt:
    """Return the attempt of :func:`cases_of_few_claims`."""
    return cases_of_few_claims(subject)[0]


@cache
def cases_of_few_claims(subject: Subject) -> AttemptedCases:
    """Return the attempt at a single function for each op and pattern claimed by the subject: cheap to compile.

    Raises:
        NotCoveredError: the subject claims nothing, or cannot compile on this machine.
    """
    for attempt_cases in (sample, all_dtypes_once):  # the second for subjects without common dtypes
        attempt, items = attempt_cases(subject)
        first = {item.subject: item for name, item in reversed(items.items()) if attempt.is_claimed(name)}
        if first:
            return attempt_of(subject, reversed(first.values()), attempt.module.constants)
    raise NotCoveredError("the backend claims no canonical case")
