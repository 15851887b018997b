"""Quantised constants: tables read row by row, weights with several readers, and constants that no backend takes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.ir import FunctionBuilder, IRModule, tensor, verify
from byoc_core.ops import default_ops
from byoc_core.transform import CopyDequantised, FoldConstants, RemoveDeadCode, Sequential, TakeIntegers, UniqueNames
from byoc_core.transform.evaluate import evaluate_function
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.ir_text import check_pass, check_unchanged, parse_main

SHAPES = ((6, 5), (4, 3, 5))
INDICES = ((), (3,), (2, 2), ("n",), ("n", 2))


def _table(
    shape: tuple[int, ...], axis: int | None, block: int, taken: int, indices: tuple[int | str, ...]
) -> IRModule:
    """Return ``take(dequantize(constant), indices)``; without ``axis``, the constant has a single scale."""
    rng = np.random.default_rng(0)
    builder = FunctionBuilder("main", ops=default_ops())
    ids = builder.param("ids", tensor(indices, "int64"))
    parameters: tuple[int, ...] = () if axis is None else (shape[axis],)
    if block:
        parameters = tuple(-(-size // block) if at == (axis or 0) else size for at, size in enumerate(shape))
    scale = builder.const(rng.random(parameters).astype(np.float32))
    zero = builder.const(rng.integers(-9, 9, parameters).astype(np.int8))
    integers = builder.const(rng.integers(-128, 128, shape).astype(np.int8))
    floats = builder.emit("dequantize", integers, scale, zero, axis=axis or 0, block_size=block)
    result = builder.emit("take", floats, ids, axis=taken)  # type: ignore[arg-type]
    return IRModule({"main": builder.finish(result)}, builder.constants, ops=builder.ops)  # type: ignore[arg-type]


def _ops(module: IRModule) -> list[str]:
    return [binding.op.name for binding in module["main"].bindings]


@settings(deadline=None)
@given(
    shape=st.sampled_from(SHAPES), indices=st.sampled_from(INDICES), block=st.sampled_from([0, 2, 3]), data=st.data()
)
def test_rows_are_selected_among_integers(
    shape: tuple[int, ...], indices: tuple[int | str, ...], block: int, data: st.DataObject
) -> None:
    rank = len(shape)
    axis = data.draw(st.integers(0, rank - 1) if block else st.one_of(st.none(), st.integers(0, rank - 1)))
    taken = data.draw(st.integers(-rank, rank - 1))
    before = _table(shape, axis, block, taken, indices)
    after = RemoveDeadCode()(TakeIntegers()(before))
    verify(after)
    is_left = axis == taken % rank and (block or rank > 2)
    assert (_ops(after)[-1] == "take") == bool(is_left)
    numbers = st.integers(0, shape[taken] - 1)
    sizes = tuple(3 if isinstance(size, str) else size for size in indices)
    count = math.prod(sizes)
    ids = np.array(data.draw(st.lists(numbers, min_size=count, max_size=count)), np.int64).reshape(sizes)
    (expected,), (found,) = (evaluate_function(module, "main", [ids]) for module in (before, after))
    np.testing.assert_array_equal(found, expected, strict=True)


def test_a_table_of_other_readers_is_dequantised_once() -> None:
    params = 'q: R.Tensor((4, 3), "int8"), i: R.Tensor((2,), "int64")'
    before = 'a = R.dequantize(q, R.const(0.5), R.const(1, "int8"))\nb = R.take(a, i, axis=0)\nreturn '
    check_unchanged(TakeIntegers(), params, f"{before}a, b")
    after = 'b = R.take(q, i, axis=0)\nb = R.dequantize(b, R.const(0.5), R.const(1, "int8"))\nreturn b'
    check_pass(Sequential([TakeIntegers(), RemoveDeadCode()]), params, f"{before}b", after)


WEIGHT = 'R.const([[1, 2], [3, 4]], "int8"), R.const(0.5), R.const(1, "int8")'
X = 'x: R.Tensor((3, 2), "float32")'
COPY = Sequential([CopyDequantised(), UniqueNames()])


def test_each_reader_has_its_own_weights() -> None:
    before = (
        f"w = R.dequantize({WEIGHT})\nt = R.permute_dims(w, axes=(1, 0))\n"
        "a = R.matmul(x, w)\nb = R.matmul(a, t)\nc = R.matmul(b, t)\nreturn c"
    )
    after = (
        f"w = R.dequantize({WEIGHT})\nt = R.permute_dims(w, axes=(1, 0))\n"
        f"w_1 = R.dequantize({WEIGHT})\na = R.matmul(x, w_1)\nb = R.matmul(a, t)\n"
        f"w_2 = R.dequantize({WEIGHT})\nt_1 = R.permute_dims(w_2, axes=(1, 0))\nc = R.matmul(b, t_1)\nreturn c"
    )
    check_pass(COPY, X, before, after)


def test_weights_read_once_stay_and_so_do_values_that_are_no_weights() -> None:
    check_unchanged(CopyDequantised(), X, f"w = R.dequantize({WEIGHT})\na = R.matmul(x, w)\nreturn a")
    check_unchanged(CopyDequantised(), X, "t = R.permute_dims(x, axes=(1, 0))\na = R.matmul(x, t)\nreturn a, t")


def test_a_result_is_a_reader() -> None:
    check_pass(
        COPY, X, f"w = R.dequantize({WEIGHT})\na = R.matmul(x, w)\nreturn w, a",
        f"w = R.dequantize({WEIGHT})\nw_1 = R.dequantize({WEIGHT})\na = R.matmul(x, w_1)\nreturn w, a",
    )  # fmt: skip


def test_weights_of_any_size_are_dequantised_when_compiling() -> None:
    module = IRModule()
    builder = FunctionBuilder("main", ops=default_ops())
    x = builder.param("x", tensor((1, 1024)))
    constants = [builder.const(array) for array in (np.ones((1024, 1024), np.int8), np.float32(0.5), np.int8(3))]
    weight = builder.emit("dequantize", *constants)
    module = IRModule({"main": builder.finish(builder.emit("matmul", x, weight))}, builder.constants, ops=builder.ops)  # type: ignore[arg-type]
    assert _ops(FoldConstants()(module)) == ["matmul"]
    assert _ops(FoldConstants(kept=("dequantize",))(module)) == ["dequantize", "matmul"]


@pytest.mark.parametrize("taken", [True, False])
def test_weights_that_no_backend_takes_are_dequantised_when_compiling(taken: bool) -> None:
    ops = ["matmul", *(["dequantize"] if taken else [])]
    backend = FakeBackend("aone", ops, quantised=True)
    body = f"w = R.dequantize({WEIGHT})\na = R.matmul(x, w)\nb = R.matmul(a, w)\nreturn b"
    report = Compiler().build(parse_main(X, body), CompileRequest(backends=[backend])).report_data
    found = [(row["op"], row["outcome"]) for row in report["ops"]]
    assert found.count(("matmul", "aone")) == 2
    assert found.count(("dequantize", "aone")) == (2 if taken else 0)
    assert len(found) == (4 if taken else 2)
