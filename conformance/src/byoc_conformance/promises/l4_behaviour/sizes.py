"""Symbolic sizes, and sizes of 0.

Results for symbolic sizes are compared with the results of the same ops compiled for fixed sizes; results on empty
arrays with the results of the reference kernels.
"""

from __future__ import annotations

from byoc_core.dims import symbols_of
from byoc_core.ir import TensorType

from byoc_conformance.examples import Example, compile_examples
from byoc_conformance.outcome import DeclinedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import (
    Results,
    agree,
    compile_own,
    is_computable,
    rebuild,
    require_examples,
    resize_first,
    run,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_SIZES = (1, 3, 17, 1025)


def _check_dynamic_sizes(subject: Subject, case: str) -> None:
    if not subject.info.dynamic_shapes:
        raise DeclinedError("the backend declares no dynamic shapes")
    examples = require_examples(subject, "symbolic")
    machine = compile_examples(subject).vm
    fixed = [(e, twin) for e in examples for size in _SIZES if (twin := _bound(subject, e, size)) is not None]
    if not fixed:
        raise NotCoveredError("no symbolic example accepts other sizes")
    attempt, claimed = compile_own(subject, [twin for _, twin in fixed])
    expected = {twin: run(attempt.vm, twin) if twin in claimed else twin.expected() for _, twin in fixed}
    for turn in ("the first time", "again"):
        for example, twin in fixed:
            agree(
                subject,
                twin,
                twin.inputs,
                run(machine, example, twin.new_inputs()),
                expected[twin],
                f"symbolic, {turn}",
            )


def _bound(subject: Subject, example: Example, size: int) -> Example | None:
    """Return a symbolic example with the same size for every symbol; ``None`` if the ops reject the size."""

    def bind(old: TensorType) -> TensorType:
        return TensorType(tuple(size if symbols_of(dim) else dim for dim in old.shape or ()), old.dtype)

    return rebuild(subject, example, f"{example.function}_{size}", bind)


def _check_empty_arrays(subject: Subject, case: str) -> None:
    examples = require_examples(subject)
    static = resize_first(subject, examples, 0)
    attempt, claimed = compile_own(subject, static)
    for example in claimed:
        _try_empty(subject, example, run(attempt.vm, example))
    bound = {e: twin for e in examples if e.kind == "symbolic" and (twin := _bound(subject, e, 0)) is not None}
    tried = [pair for pair in bound.items() if is_computable(pair[1], pair[1].inputs)]
    for symbolic, twin in tried:
        _try_empty(subject, twin, run(compile_examples(subject).vm, symbolic, twin.new_inputs()))
    if not claimed and not tried:
        reasons = [reason for example in static for reason in attempt.reasons(example.function)]
        if reasons:
            raise DeclinedError(f"{reasons[0].code}: {reasons[0].text}")
        raise NotCoveredError("no example accepts arrays without elements")


def _try_empty(subject: Subject, example: Example, found: Results) -> None:
    agree(subject, example, example.inputs, found, example.expected(), "on arrays without elements")


PROMISES = (
    Promise(
        Level.L4,
        "dynamic-shapes",
        "gives the same results for symbolic sizes as for fixed sizes, with sizes from 1 to 1025 in turn",
        _check_dynamic_sizes,
    ),
    Promise(
        Level.L4, "zero-size", "accepts arrays without elements, for fixed and symbolic sizes", _check_empty_arrays
    ),
)
