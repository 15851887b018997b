"""Every claimed op, with operands of rank 0 in all places permitted by the type rule."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import byoc_ccompiler.backend as ccompiler
import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.options import CCompilerOptions
from byoc_ccompiler.registry import FAMILIES
from byoc_core.backend.hooks import CompileContext, Support
from byoc_core.dtypes import dtype_info, to_numpy
from byoc_core.errors import ExecutionError, IRTypeError
from byoc_core.ir import Function, FunctionBuilder, TensorType, Value
from byoc_core.ops import default_ops
from byoc_core.ops.cases import OpCase, array_of, canonical_cases, new_function

from plugins.ccompiler.tests.bench import Bench, sizes_of, tensor_type

NDArray = npt.NDArray[Any]
Attrs = Mapping[str, Any]
CONTEXT = CompileContext("ccompiler", CCompilerOptions.model_validate({}))
REDUCTIONS = {"float": "max", "int": "max", "uint": "max", "bool": "any"}
ULP = 64
"""Sums of a few tens of terms, each within a few units of the last place of the largest."""


def _scalar_types(case: OpCase) -> Iterator[tuple[TensorType, ...]]:
    """Yield the operand types of a case with every choice of operands as scalars."""
    for choice in itertools.product((False, True), repeat=len(case.operands)):
        types = case.types()
        yield tuple(TensorType((), t.dtype) if scalar else t for t, scalar in zip(types, choice, strict=True))


def _attrs(case: OpCase) -> Iterator[Attrs]:
    """Yield the attributes of a case, and also with axes possible for a scalar."""
    yield dict(case.attrs)
    for spec in default_ops()[case.op].attrs:
        if spec.name in ("axis", "axes", "shape", "repeats", "pad_width", "begin", "end", "strides"):
            yield from ({**case.attrs, spec.name: value} for value in ((), None, 0, -1))
        if spec.name == "equation":
            yield from ({**case.attrs, spec.name: text} for text in ("->", ",->", "ij,->ji", ",ij->i"))


def _accepted_ops() -> Iterator[tuple[str, tuple[TensorType, ...], Attrs, OpCase]]:
    """Yields every op on scalars that the type rules and the backend take, each once."""
    seen: set[object] = set()
    for name, cases in canonical_cases(default_ops()).items():
        for case in cases if name in FAMILIES else ():
            for types, attrs in itertools.product(_scalar_types(case), _attrs(case)):
                key = (name, types, tuple(sorted((key, str(value)) for key, value in attrs.items())))
                if all(type_.shape for type_ in types) or key in seen:
                    continue
                seen.add(key)
                try:
                    _, binding = new_function(default_ops()[name], types, attrs)
                except IRTypeError:
                    continue
                if isinstance(ccompiler.byoc_supports(binding, CONTEXT), Support):
                    yield name, types, attrs, case


def _reduced(builder: FunctionBuilder, source: Value | None, type_: TensorType, name: str) -> Value:
    """Return a scalar made by a reduction of a whole tensor: of another operand, or of a separate parameter."""
    if source is None or source.type.dtype != type_.dtype:  # type: ignore[union-attr]
        source = builder.param(name, TensorType((2, 3), type_.dtype))
    return builder.bind(REDUCTIONS[dtype_info(type_.dtype).kind], [source], {}).results[0]


def _add(bench: Bench, name: str, types: Sequence[TensorType], attrs: Attrs, *, reduced: bool) -> Any:
    """Add a function of the op; ``reduced``: the scalars are reductions, perhaps in a shared kernel."""
    builder = bench.builder()
    values: dict[int, Value] = {
        index: builder.param(f"x{index}", type_) for index, type_ in enumerate(types) if type_.shape or not reduced
    }
    source = next(iter(values.values()), None)
    for index, type_ in enumerate(types):
        if index not in values:
            values[index] = _reduced(builder, source, type_, f"x{index}")
    return bench.add(builder, *builder.bind(name, [values[index] for index in range(len(types))], attrs).results)


def _arrays(function: Function, case: OpCase, generator: np.random.Generator) -> list[NDArray]:
    """Return operands within the bounds of the case's own: indices, lengths."""
    arrays = []
    for param in function.params:
        operand = case.operands[int(param.name.removeprefix("x"))]
        arrays.append(array_of(tensor_type(param), generator, operand.low, operand.high))
    return arrays


def _check(bench: Bench, function: Function, inputs: Sequence[NDArray], label: object) -> None:
    results = function.results
    outputs: list[NDArray] = [np.full(sizes_of(value), 1, to_numpy(tensor_type(value).dtype)) for value in results]
    try:
        with np.errstate(all="ignore"):
            expected = bench.reference(function, *inputs, wide=True)
    except ExecutionError:  # an index lies outside the axis that a variant chose
        with pytest.raises(ExecutionError):
            bench.module.get_function(function.name)(*inputs, *outputs)
        return
    bench.module.get_function(function.name)(*inputs, *outputs)
    for actual, right in zip(outputs, expected, strict=True):
        assert actual.shape == right.shape, label
        if actual.dtype.kind != "f":
            np.testing.assert_array_equal(actual, right.astype(actual.dtype), str(label))
            continue
        with np.errstate(all="ignore"):
            rounded = right.astype(actual.dtype).astype(np.float64)
        finite = np.isfinite(rounded)
        np.testing.assert_array_equal(actual[~finite], rounded[~finite].astype(actual.dtype), str(label))
        scale = max(1.0, float(np.abs(rounded[finite]).max(initial=0)))
        error = np.abs(actual[finite].astype(np.float64) - rounded[finite])
        assert np.all(error <= ULP * float(np.finfo(actual.dtype).eps) * scale), label


def test_every_op_that_is_taken_computes_on_scalars() -> None:
    """Arithmetic on ranks tends to fail for an axis, a row or an iteration space of nothing."""
    bench = Bench(opt_level=0)
    added = [
        (case, _add(bench, name, types, attrs, reduced=reduced), (name, types, attrs, reduced))
        for name, types, attrs, case in _accepted_ops()
        for reduced in (False, True)
    ]
    tried = {label[0] for _, _, label in added}
    assert tried >= {"quantize", "dequantize", "add", "where", "take", "einsum", "reshape", "sum", "cast"}
    assert len(tried) > 90
    for case, function, label in added:
        _check(bench, function, _arrays(function, case, np.random.default_rng(7)), label)
