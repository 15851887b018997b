"""Recurrent layers: packed weights, whole and ragged panels, blocks of steps and lines, each form of a step."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import parse_dim
from byoc_core.ir import Function, tensor

from plugins.ccompiler.tests.bench import Bench

NDArray = npt.NDArray[Any]
Sizes = tuple[int, int, int, int]
GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
ATTRS: dict[str, tuple[Mapping[str, Any], ...]] = {
    "nn.rnn": ({"activation": "tanh"}, {"activation": "relu"}),
    "nn.gru": ({"linear_before_reset": False}, {"linear_before_reset": True}),
    "nn.lstm": ({},),
}
LAYERS = [(op, attrs) for op, choices in ATTRS.items() for attrs in choices]
DIRECTIONS = ("forward", "reverse", "bidirectional")
LONGEST = 60
"""More steps than taken by a line at a time."""
CALLS: tuple[tuple[int, int], ...] = ((0, 2), (2, 0), (LONGEST, 1), (1, 15), (9, 14), (7, 2))
"""Steps and batches: none, a line over several blocks of steps, more lines than go side by side."""
HIDDEN = (5, 33, 72)
"""Hidden units: less than a vector, a ragged vector, whole panels and a last panel of fewer vectors."""


def draw_weights(op: str, num_directions: int, inputs: int, hidden: int, dtype: str) -> list[NDArray]:
    rng, width = np.random.default_rng(hidden), GATES[op] * hidden
    shapes = ((num_directions, width, inputs), (num_directions, width, hidden), (num_directions, 2 * width))
    return [(rng.standard_normal(shape) * hidden**-0.5).astype(dtype) for shape in shapes]


def draw_inputs(op: str, num_directions: int, sizes: Sizes, dtype: str) -> list[NDArray]:
    steps, batch, inputs, hidden = sizes
    rng = np.random.default_rng(steps * 100 + batch)
    shapes = [(steps, batch, inputs), *[(num_directions, batch, hidden)] * (2 if op == "nn.lstm" else 1)]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def draw_lengths(steps: int, batch: int) -> NDArray:
    """Return unordered lengths, including the longest and 0."""
    return np.array([steps - item * 5 % (steps + 1) for item in range(batch)], np.int32)


def assert_near(found: NDArray, right: NDArray) -> None:
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
    finite, unit = np.isfinite(right), np.finfo(found.dtype).eps / 2
    np.testing.assert_array_equal(found[~finite], right[~finite])
    largest = max(1.0, float(np.abs(right[finite]).max(initial=0)))
    bound = 64 * unit * largest if found.dtype == np.float32 else 512 * unit * largest
    np.testing.assert_allclose(found[finite].astype(np.float64), right[finite], rtol=0, atol=bound)


def _add(
    bench: Bench, op: str, attrs: Mapping[str, Any], direction: str, hidden: int, *, has_lengths: bool, dtype: str
) -> Function:
    """Add a layer with constant weights over any steps and batch, of 3 inputs."""
    num_directions = 2 if direction == "bidirectional" else 1
    builder = bench.builder()
    x = builder.param("x", tensor(("t", "b", 3), dtype))
    states = [
        builder.param(f"s{number}", tensor((num_directions, "b", hidden), dtype))
        for number in range(1 + (op == "nn.lstm"))
    ]
    lengths = [builder.param("lengths", tensor(("b",), "int32"))] if has_lengths else []
    results = builder.emit(
        op, x, *draw_weights(op, num_directions, 3, hidden, dtype), *states, *lengths, direction=direction, **attrs
    )
    return bench.add(builder, *results)


CASES = [
    *product(LAYERS, DIRECTIONS, HIDDEN, (False, True), ("float32",)),
    *product(LAYERS, ("bidirectional",), (33,), (False, True), ("float64",)),
]


@pytest.fixture(scope="module")
def compiled() -> Bench:
    bench = Bench()
    for (op, attrs), direction, hidden, has_lengths, dtype in CASES:
        _add(bench, op, attrs, direction, hidden, has_lengths=has_lengths, dtype=dtype)
    return bench


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: "-".join(map(str, CASES[index])))
def test_any_steps_and_batch_with_constant_weights(compiled: Bench, index: int) -> None:
    (op, _), direction, hidden, has_lengths, dtype = CASES[index]
    num_directions, function = 2 if direction == "bidirectional" else 1, compiled.functions[index]
    for steps, batch in CALLS:
        inputs = draw_inputs(op, num_directions, (steps, batch, 3, hidden), dtype)
        inputs += [draw_lengths(steps, batch)] if has_lengths else []
        expected = compiled.reference(function, *inputs, wide=True)
        for found, right in zip(compiled.run(function, *inputs), expected, strict=True):
            assert_near(found, right)


@pytest.mark.parametrize("index", range(0, len(CASES), 5), ids=lambda index: "-".join(map(str, CASES[index])))
def test_a_line_has_the_same_bits_in_any_batch(compiled: Bench, index: int) -> None:
    """A single line takes another path than many; threads cut batches anywhere."""
    (op, _), direction, hidden, has_lengths, dtype = CASES[index]
    num_directions, function = 2 if direction == "bidirectional" else 1, compiled.functions[index]
    inputs = draw_inputs(op, num_directions, (9, 14, 3, hidden), dtype)
    inputs += [draw_lengths(9, 14)] if has_lengths else []
    together = compiled.run(function, *inputs)
    for first, end in ((0, 1), (5, 6), (3, 7), (13, 14)):
        alone = [array[:, first:end] if array.ndim == 3 else array[first:end] for array in inputs]
        for many, few in zip(together, compiled.run(function, *map(np.ascontiguousarray, alone)), strict=True):
            np.testing.assert_array_equal(many[..., first:end, :], few)


@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
def test_known_sizes(bench: Bench, op: str, attrs: Mapping[str, Any]) -> None:
    """A line, and several, with numbers of steps not multiples of the block."""
    cases: list[tuple[Sizes, str]] = [((50, 1, 20, 16), "reverse"), ((11, 7, 5, 24), "bidirectional")]
    functions = []
    for (steps, batch, inputs, hidden), direction in cases:
        num_directions = 2 if direction == "bidirectional" else 1
        builder = bench.builder()
        params = [
            builder.param(f"x{k}", tensor(array.shape))
            for k, array in enumerate(draw_inputs(op, num_directions, (steps, batch, inputs, hidden), "float32"))
        ]
        weights = draw_weights(op, num_directions, inputs, hidden, "float32")
        results = builder.emit(op, params[0], *weights, *params[1:], direction=direction, **attrs)
        functions.append((bench.add(builder, *results), (steps, batch, inputs, hidden), num_directions))
    for function, sizes, num_directions in functions:
        arrays = draw_inputs(op, num_directions, sizes, "float32")
        for found, right in zip(
            bench.run(function, *arrays), bench.reference(function, *arrays, wide=True), strict=True
        ):
            assert_near(found, right)


@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
def test_weights_of_any_size_as_inputs(bench: Bench, op: str, attrs: Mapping[str, Any]) -> None:
    """Weights are rearranged by each call, also if only the call has their sizes."""
    sizes, functions = (5, 33), []
    for inputs, hidden in (("i", "h"), sizes):
        width = parse_dim(f"{GATES[op]} * h") if hidden == "h" else GATES[op] * int(hidden)
        states = [tensor((2, "b", hidden))] * (2 if op == "nn.lstm" else 1)
        weights = [tensor((2, width, inputs)), tensor((2, width, hidden)), tensor((2, width * 2))]
        functions.append(
            bench.op(op, [tensor(("t", "b", inputs)), *weights, *states], direction="bidirectional", **attrs)
        )
    for function, (inputs, hidden) in ((functions[0], (4, 70)), (functions[0], (1, 3)), (functions[1], sizes)):
        for steps, batch in ((3, 2), (5, 1), (0, 1), (1, 0)):
            x, *rest = draw_inputs(op, 2, (steps, batch, inputs, hidden), "float32")
            arrays = [x, *draw_weights(op, 2, inputs, hidden, "float32"), *rest]
            expected = bench.reference(function, *arrays, wide=True)
            for found, right in zip(bench.run(function, *arrays), expected, strict=True):
                assert_near(found, right)


@pytest.mark.parametrize(("op", "attrs"), LAYERS, ids=str)
def test_what_is_not_finite_stays_in_its_line(compiled: Bench, op: str, attrs: Mapping[str, Any]) -> None:
    index = CASES.index(((op, attrs), "bidirectional", 33, False, "float32"))
    function = compiled.functions[index]
    x, *states = draw_inputs(op, 2, (9, 14, 3, 33), "float32")
    x[4, 2, 1], x[3, 5], states[0][0, 7, 3], x[8, 9, 0] = np.nan, np.inf, -np.inf, -np.inf
    for found, right in zip(compiled.run(function, x, *states), compiled.reference(function, x, *states), strict=True):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(right))


@pytest.mark.parametrize("lengths", [None, [20, 3, 19, 0, 20, 1, 7, 20, 20, 5, 9, 20, 2]], ids=["whole", "lengths"])
def test_threads_share_lines(lengths: list[int] | None) -> None:
    """The layer is large enough for threads to wake."""
    builder: Any = byoc_core.FunctionBuilder("main")
    x, state = builder.param("x", tensor((20, 13, 48))), np.zeros((2, 13, 96), np.float32)
    operands = [x, *draw_weights("nn.lstm", 2, 48, 96, "float32"), state, state]
    operands += [] if lengths is None else [np.array(lengths, np.int32)]
    results = builder.emit("nn.lstm", *operands, direction="bidirectional")
    module = byoc_core.IRModule({"main": builder.finish(*results)}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    values = np.random.default_rng(0).standard_normal((20, 13, 48)).astype(np.float32)
    found = [byoc_core.VirtualMachine(executable, num_threads=threads)["main"](values) for threads in (1, 2, 3, 7)]
    assert len({b"".join(np.asarray(result).tobytes() for result in results) for results in found}) == 1


@pytest.mark.parametrize(("op", "attrs"), [("nn.lstm", {}), ("nn.gru", {}), ("nn.gru", {"linear_before_reset": True})])
def test_threads_share_the_panels_of_a_single_line(op: str, attrs: dict[str, Any]) -> None:
    """24 units more than full panels: the last panel is narrower."""
    num_steps, inputs, hidden = 20, 200, 280
    builder: Any = byoc_core.FunctionBuilder("main")
    state = np.zeros((1, 1, hidden), np.float32)
    operands = [builder.param("x", tensor((num_steps, 1, inputs))), *draw_weights(op, 1, inputs, hidden, "float32")]
    results = builder.emit(op, *operands, *[state] * (2 if op == "nn.lstm" else 1), **attrs)
    module = byoc_core.IRModule({"main": builder.finish(*results)}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    (source,) = (module.get_source("c") for module in executable.modules)
    assert source.count("_for(") >= 2, "the product of the inputs, and in each step the product of the state"
    values = np.random.default_rng(0).standard_normal((num_steps, 1, inputs)).astype(np.float32)
    found = [byoc_core.VirtualMachine(executable, num_threads=threads)["main"](values) for threads in (1, 2, 3, 7)]
    assert len({b"".join(np.asarray(result).tobytes() for result in results) for results in found}) == 1
    reference = byoc_core.VirtualMachine(byoc_core.build(module, backends=[]))["main"](values)
    for result, right in zip(found[0], reference, strict=True):
        assert_near(np.asarray(result), np.asarray(right))
