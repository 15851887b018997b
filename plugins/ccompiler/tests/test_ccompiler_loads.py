"""Ops turned into loads of their reading kernel: the choice, and correct results, errors and memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.composites import take_apart
from byoc_ccompiler.loads import form_loads
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.steps import flatten
from byoc_core.authoring.csource import ConstantPool
from byoc_core.dims import symbol
from byoc_core.errors import ExecutionError
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import CallTraits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench, Builder, sizes_of

Array = npt.NDArray[Any]

ROW = 16


def _groups(bench: Bench, function: Function) -> list[Group]:
    steps, results = flatten(function)
    return form_loads(form_groups(take_apart(steps, ConstantPool(bench.constants)), FAMILIES), results)


def _kernels(bench: Bench, function: Function) -> list[list[str]]:
    """Return the ops of each kernel, with the ops of loads in separate brackets."""
    return [
        [f"[{step.op}]" for step in group.loads.values()] + [s.op for s in group.steps]
        for group in _groups(bench, function)
    ]


def _integral(*shape: int, seed: int = 0) -> Array:
    """Return whole numbers, whose sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype("float32")


def _check(bench: Bench, function: Function, *inputs: Array) -> None:
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_array_equal(actual, expected)


def test_gathers_are_loads_of_an_elementwise_kernel(bench: Bench) -> None:
    builder = bench.builder()
    words, kinds = builder.param("words", tensor((50, ROW))), builder.param("kinds", tensor((3, ROW)))
    ids, types = (builder.param(name, tensor((2, 5), "int64")) for name in ("ids", "types"))
    added = builder.emit("add", builder.emit("take", words, ids, axis=0), builder.emit("take", kinds, types, axis=0))
    function = bench.add(builder, added)
    assert _kernels(bench, function) == [["[take]", "[take]", "add"]]
    inputs = [_integral(50, ROW), _integral(3, ROW, seed=1)]
    _check(bench, function, *inputs, np.arange(-5, 5).reshape(2, 5), np.array([[0, 1, 2, -1, -3]] * 2))


def test_gathers_are_loads_of_a_row_kernel(bench: Bench) -> None:
    builder = bench.builder()
    n, m = symbol("n"), symbol("m")
    words, ids = builder.param("words", tensor((50, 48))), builder.param("ids", tensor((n, m), "int32"))
    scale, bias = builder.param("scale", tensor((48,))), builder.param("bias", tensor((48,)))
    rows = builder.emit("take", words, ids, axis=0)
    function = bench.add(builder, builder.emit("nn.layer_norm", rows, scale, bias, axes=(-1,), epsilon=1e-5))
    (group,) = _groups(bench, function)
    assert [step.op for step in group.loads.values()] == ["take"]
    inputs = [
        np.random.default_rng(k).standard_normal(shape).astype("float32")
        for k, shape in enumerate(((50, 48), (48,), (48,)))
    ]
    for count in ((2, 5), (1, 1), (0, 3)):
        indices = np.random.default_rng(0).integers(-50, 50, count).astype("int32")
        (actual,) = bench.run(function, inputs[0], indices, *inputs[1:])
        (expected,) = bench.reference(function, inputs[0], indices, *inputs[1:], wide=True)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_an_index_of_a_load_means_what_the_mode_says(bench: Bench, mode: str) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((3, 7, ROW))), builder.param("ids", tensor((4,), "int64"))
    rows = builder.emit("take", x, ids, axis=1, mode=mode) if mode == "clip" else builder.emit("take", x, ids, axis=1)
    function = bench.add(builder, builder.emit("abs", rows))
    assert _kernels(bench, function) == [["[take]", "abs"]]
    inside = np.array([0, 6, -7, -1])
    _check(bench, function, _integral(3, 7, ROW), inside if mode == "wrap" else inside * 5)


def test_a_wrong_index_of_a_load_is_an_error_before_anything_is_written(bench: Bench) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((3, ROW))), builder.param("ids", tensor((2,), "int64"))
    function = bench.add(builder, builder.emit("negative", builder.emit("take", x, ids, axis=0)))
    assert _kernels(bench, function) == [["[take]", "negative"]]
    out = np.full((2, ROW), 7, "float32")
    for wrong in (3, -4, 2**40):
        with pytest.raises(
            ExecutionError, match=rf"op `take`: an index lies outside axis 0; got {wrong}, expected -3 to 2"
        ):
            bench.module.get_function(function.name)(_integral(3, ROW), np.array([0, wrong]), out)
    assert np.all(out == 7)
    _check(bench, function, _integral(3, ROW), np.array([2, -3]))


def test_halves_are_moved_by_loads(bench: Bench) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((9, ROW), "float16")), builder.param("ids", tensor((4,), "int64"))
    rows = builder.emit("take", x, ids, axis=0)
    function = bench.add(builder, builder.emit("multiply", rows, rows))
    _check(bench, function, _integral(9, ROW).astype("float16"), np.array([8, 0, -2, 3]))
    assert "_take_cast_multiply_cast(" in bench.module.get_source()


def _rolled(builder: Builder, x: Any, axis: int, shift: int) -> Any:
    """Return a roll in exporters' form: two slices, joined again."""
    size = sizes_of(x)[axis]
    parts = [
        builder.emit("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,), strides=(1,))
        for begin, end in ((shift, size), (0, shift))
    ]
    return builder.emit("concat", *parts, axis=axis)


def test_windows_that_are_put_back_are_a_load(bench: Bench) -> None:
    builder = bench.builder()
    side, window = 6, 3
    windows, x = builder.param("windows", tensor((4, 9, ROW))), builder.param("x", tensor((1, side * side, ROW)))
    apart = builder.emit("reshape", windows, shape=(1, 2, 2, window, window, ROW))
    image = builder.emit(
        "reshape", builder.emit("permute_dims", apart, axes=(0, 1, 3, 2, 4, 5)), shape=(1, side, side, ROW)
    )
    for axis in (1, 2):
        image = _rolled(builder, image, axis, side - 1)
    added = builder.emit("add", x, builder.emit("reshape", image, shape=(1, side * side, ROW)))
    function = bench.add(builder, added, builder.emit("sum", added, axis=(2,), keepdims=False))
    (group,) = _groups(bench, function)
    assert sorted(step.op for step in group.loads.values()) == sorted(
        ["reshape", "permute_dims", "reshape", *["strided_slice", "strided_slice", "concat"] * 2, "reshape"]
    )
    _check(bench, function, _integral(4, 9, ROW), _integral(1, side * side, ROW, seed=1))


def test_rows_are_moved_before_they_are_normalised(bench: Bench) -> None:
    """The norm reads rows in the order of the roll and the windows; later ops read windows without a gap."""
    builder = bench.builder()
    side, window = 6, 3
    x = builder.param("x", tensor((1, side * side, ROW)))
    scale, bias = builder.param("scale", tensor((ROW,))), builder.param("bias", tensor((ROW,)))
    normal = builder.emit("nn.layer_norm", x, scale, bias, axes=(-1,), epsilon=1e-5)
    image = builder.emit("reshape", normal, shape=(1, side, side, ROW))
    image = _rolled(builder, _rolled(builder, image, 1, 1), 2, 1)
    apart = builder.emit("reshape", image, shape=(1, 2, window, 2, window, ROW))
    turned = builder.emit("permute_dims", apart, axes=(0, 1, 3, 2, 4, 5))
    windows = builder.emit("reshape", turned, shape=(4, window * window, ROW))
    product = builder.emit("matmul", windows, builder.param("w", tensor((ROW, 5))))
    function = bench.add(builder, product, builder.emit("negative", x))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, np.float32) for shape in ((1, side * side, ROW), (ROW,), (ROW,), (ROW, 5))]
    wide = bench.reference(function, *inputs, wide=True)
    for actual, expected in zip(bench.run(function, *inputs), wide, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-5)
    (normed,) = re.findall(r"/\* (.*), nn.layer_norm \*/", bench.module.get_source())
    moves = ["reshape", *["strided_slice", "strided_slice", "concat"] * 2, "reshape", "permute_dims", "reshape"]
    assert sorted(normed.split(", ")) == sorted(moves)


def test_cheap_steps_of_another_shape_are_loads(bench: Bench) -> None:
    builder = bench.builder()
    scores, mask = builder.param("scores", tensor((6, 2, 5, 32))), builder.param("mask", tensor((1, 3, 1, 5, 32)))
    apart = builder.emit("reshape", scores, shape=(2, 3, 2, 5, 32))
    masked = builder.emit("reshape", builder.emit("add", apart, mask), shape=(6, 2, 5, 32))
    function = bench.add(builder, builder.emit("sum", masked, axis=(3,), keepdims=True))
    (group,) = _groups(bench, function)
    assert [step.op for step in group.steps] == ["sum"]
    assert sorted(step.op for step in group.loads.values()) == ["add", "reshape", "reshape"]
    _check(bench, function, _integral(6, 2, 5, 32), _integral(1, 3, 1, 5, 32, seed=1))


def test_what_others_read_too_is_no_load(bench: Bench) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((9, ROW))), builder.param("ids", tensor((4,), "int64"))
    rows = builder.emit("take", x, ids, axis=0)
    function = bench.add(builder, builder.emit("abs", rows), rows)
    assert _kernels(bench, function) == [["take"], ["abs"]]
    _check(bench, function, _integral(9, ROW), np.array([8, 0, -2, 3]))


def test_a_load_that_broadcasts_is_none(bench: Bench) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((9, ROW))), builder.param("ids", tensor((4,), "int64"))
    function = bench.add(
        builder, builder.emit("add", builder.param("y", tensor((3, 4, ROW))), builder.emit("take", x, ids, axis=0))
    )
    assert _kernels(bench, function) == [["take"], ["add"]]
    _check(bench, function, _integral(9, ROW), np.array([8, 0, -2, 3]), _integral(3, 4, ROW, seed=1))


def test_no_result_lies_in_what_a_load_reads_elsewhere(bench: Bench) -> None:
    builder = bench.builder()
    x, ids = builder.param("x", tensor((4, ROW))), builder.param("ids", tensor((4,), "int64"))
    function = bench.add(builder, builder.emit("add", x, builder.emit("take", x, ids, axis=0)))
    assert _kernels(bench, function) == [["[take]", "add"]]
    assert bench.module.call_traits(function.name) == CallTraits()
    _check(bench, function, _integral(4, ROW), np.array([3, 2, 1, 0]))


def test_a_take_at_one_place_is_a_view(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((5, 3, 6, ROW)))
    parts = [builder.emit("take", x, np.int64(index), axis=1) for index in (0, -1)]
    function = bench.add(builder, builder.emit("subtract", *parts))
    _check(bench, function, _integral(5, 3, 6, ROW))
    assert "_kernel" not in bench.module.get_source()
    assert bench.module.call_traits(function.name).workspace_nbytes == 0


THREADS = """
import sys, numpy as np, byoc_core
from byoc_core.authoring import csource_parallel
csource_parallel.PARALLEL_WORK_PS = 0
text = sys.argv[1]
module = byoc_core.parse(text)
executable = byoc_core.build(module, backends=["ccompiler"])
assert "byoc_parallel_for(" in executable.get_source()
vm = byoc_core.VirtualMachine(executable)
rng = np.random.default_rng(0)
result = vm["main"](rng.standard_normal((50, 48)).astype("float32"), rng.integers(-50, 50, (31, 7)))
print(np.asarray(result).tobytes().hex())
"""
TEXT = """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((50, 48), "float32"), ids: R.Tensor((31, 7), "int64")):
        lv0 = R.take(x, ids, axis=0)
        lv1 = R.nn.softmax(lv0)
        return lv1
"""


@pytest.mark.interpreter
def test_loads_are_the_same_on_any_number_of_threads() -> None:
    module = byoc_core.parse(TEXT)
    assert byoc_core.build(module, backends=["ccompiler"]).report_data["offloaded_share"] == 1
    texts = []
    for count in ("1", "3"):
        environment = {**os.environ, "OMP_NUM_THREADS": count}
        done = subprocess.run(
            [sys.executable, "-c", THREADS, TEXT], capture_output=True, text=True, env=environment, check=True
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert len(texts[0]) > 31 * 7 * 48 * 8


MOVES = ("take", "turn", "roll", "window", "slice")


def _moved(builder: Builder, x: Any, move: str, draw: Callable[[int], int]) -> Any:
    """Return a tensor of three axes with rows moved in some way."""
    rows, columns, last = sizes_of(x)
    axis = draw(2)
    size = (rows, columns)[axis]
    if move == "take":
        indices = np.array([draw(2 * size) - size for _ in range(1 + draw(4))])
        return builder.emit("take", x, indices, axis=axis)
    if move == "turn":
        return builder.emit("permute_dims", x, axes=(1, 0, 2))
    if move == "roll" and size > 1:
        return _rolled(builder, x, axis, 1 + draw(size - 1))
    if move == "slice":
        begin = draw(size)
        step = 1 + draw(2)
        return builder.emit("strided_slice", x, axes=(axis,), begin=(begin,), end=(size,), strides=(step,))
    return builder.emit("reshape", x, shape=(columns, rows, last))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(MOVES), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_any_chain_of_moves_is_right(moves: Sequence[str], random: Any) -> None:
    bench = Bench(opt_level=0)
    builder = bench.builder()
    x = builder.param("x", tensor((4, 6, ROW)))
    value: Any = x
    for move in moves:
        value = _moved(builder, value, move, random.randrange)
    shape = sizes_of(value)
    y = builder.param("y", tensor(shape))
    added = builder.emit("add", y, value)
    reducing = random.choice(("none", "sum", "max"))
    results = [added] if reducing == "none" else [added, builder.emit(reducing, added, axis=(2,), keepdims=True)]
    function = bench.add(builder, *results)
    if {"take", "roll"} & set(moves):
        groups = _groups(bench, function)
        is_moved = any(step.op in ("take", "concat") for step in flatten(function)[0])
        assert not is_moved or (len(groups) == 1 and groups[0].loads)
    _check(bench, function, _integral(4, 6, ROW), _integral(*shape, seed=1))
