"""Sizes hidden from the type rules by symbols: generated code computes broadcast sizes and refuses all others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import byoc_core.host.backend as host
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.backend.hooks import CompileContext
from byoc_core.dims import evaluate
from byoc_core.errors import CallError, ExecutionError
from byoc_core.ir import Function, TensorType, Value, tensor
from byoc_core.runtime import bind_symbols
from byoc_core.runtime.arguments import concrete_shape
from byoc_core.runtime.module import PackedFunction
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench, Builder

NDArray = npt.NDArray[Any]
POOL = {"pool_size": (3,), "strides": (2,), "ceil_mode": True}
ADD: tuple[str, dict[str, Any]] = ("add", {})
# The op and its attributes, operand types, shapes that do not fit, what the error says of the op.
MISFITS: list[tuple[tuple[str, dict[str, Any]], list[TensorType], list[tuple[int, ...]], str]] = [
    (ADD, [tensor((4,)), tensor(("k",))], [(4,), (2,)], "`add`, operand `y`: axis 0 does not broadcast; got 2"),
    (ADD, [tensor(("n",)), tensor(("m",))], [(2,), (3,)], "`add`, operand `x`: axis 0 does not broadcast; got 2"),
    (ADD, [tensor(("n+2",)), tensor((5, "m"))], [(4,), (5, 6)], "`add`, operand `y`: axis 1 does not broadcast; got 6"),
    (
        ("broadcast_to", {"shape": ("n", "n")}),
        [tensor(("m", "n"))],
        [(3, 1)],
        "`broadcast_to`, operand `x`: axis 0 does not broadcast; got 3",
    ),
    (
        ("matmul", {}),
        [tensor((2, 3, 4)), tensor(("n", 4, 2))],
        [(2, 3, 4), (3, 4, 2)],
        "`matmul`, operand `y`: axis 0 does not broadcast; got 3",
    ),
    (
        ("nn.max_pool2d", POOL),
        [tensor((1, 1, "h", "w"))],
        [(1, 1, 4, 2)],
        "`nn.max_pool2d`: axis 3 of the padded image (N, C, H, W) is too small; got 2",
    ),
    (
        ("nn.max_pool2d", {**POOL, "layout": "NHWC"}),
        [tensor((1, "h", "w", 1))],
        [(1, 4, 2, 1)],
        "`nn.max_pool2d`: axis 3 of the padded image (N, C, H, W) is too small; got 2",
    ),
    (
        ("nn.conv1d_transpose", {"padding": (2,)}),
        [tensor((1, 1, "w")), tensor((1, 1, 3))],
        [(1, 1, 1), (1, 1, 3)],
        "`nn.conv1d_transpose`: axis 2 of the result (N, C, W) is too small; got -1",
    ),
    (
        ("nn.conv2d", {"padding": (1,)}),
        [tensor((1, 1, "h", "w")), tensor((1, 1, 3, 3))],
        [(1, 1, 0, 2), (1, 1, 3, 3)],
        "`nn.conv2d`: axis 2 of the padded image (N, C, H, W) is too small; got 2",
    ),
    (
        ("split", {"sections": ("n-2", 2), "axis": 0}),
        [tensor(("n",))],
        [(1,)],
        "`split`: axis 0 of the result is too small; got -1",
    ),
]


def _call(function: PackedFunction, *inputs: NDArray) -> NDArray:
    """Return the only result of a function, with an output allocated from the inputs' sizes."""
    assert function.signature is not None
    (spec,) = function.signature.outputs
    sizes = bind_symbols(function.signature.inputs, inputs)
    output = np.full(concrete_shape(spec, sizes, spec.name), 99, spec.dtype)
    function(*inputs, output)
    return output


@pytest.mark.parametrize(("op", "types", "shapes", "text"), MISFITS)
def test_sizes_that_no_output_shows_are_checked(
    bench: Bench, op: tuple[str, dict[str, Any]], types: list[TensorType], shapes: list[tuple[int, ...]], text: str
) -> None:
    builder = bench.builder()
    params = [builder.param(f"x{index}", type_) for index, type_ in enumerate(types)]
    results = builder.bind(op[0], params, op[1]).results
    function = bench.add(builder, builder.emit("sum", results[0]))
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    with pytest.raises(ExecutionError) as caught:
        _call(bench.module.get_function(function.name), *inputs)
    message, expected = str(caught.value).rsplit(", expected ", 1)
    assert message == f"function `{function.name}`, op {text}"
    assert expected in ("4 or 1", "3 or 1", "1 or 1", "2 or 1", "3 or more", "1 or more", "0 or more")
    reference = host.byoc_codegen([function], CompileContext("host", None, {})).module
    assert reference is not None
    with pytest.raises(ExecutionError):
        _call(reference.get_function(function.name), *inputs)


@pytest.mark.parametrize("size", ["n//m", "n%m"])
def test_a_size_divided_by_an_empty_axis_fits_no_tensor(bench: Bench, size: str) -> None:
    """The generated code has its own check: the caller's check in Python is bypassed."""
    builder = bench.builder()
    params = [builder.param(name, tensor((dim,))) for name, dim in (("x", "n"), ("y", "m"), ("z", size))]
    function = bench.add(builder, *(builder.emit("exp", param) for param in params))
    implementation = bench.module.get_function(function.name).impl
    for count in (0, 1, 4):
        inputs = [np.ones(length, np.float32) for length in (4, 0, count)]
        with pytest.raises(ExecutionError, match=f"`{function.name}`.*`z`"):
            implementation(*inputs, *(np.empty_like(array) for array in inputs))


def test_tutorial_form_checks_as_well() -> None:
    bench = Bench(tutorial=True)
    builder = bench.builder()
    x, y = builder.param("x", tensor((4,))), builder.param("y", tensor(("k",)))
    function = bench.add(builder, builder.emit("add", x, y))
    packed = bench.module.get_function(function.name)
    np.testing.assert_array_equal(_call(packed, np.ones(4, "float32"), np.ones(1, "float32")), np.full(4, 2))
    with pytest.raises(ExecutionError) as caught:
        _call(packed, np.ones(4, "float32"), np.ones(2, "float32"))
    assert str(caught.value) == (
        f"function `{function.name}`, op `add`, operand `y`: axis 0 does not broadcast; got 2, expected 4 or 1"
    )


@pytest.mark.parametrize(("rows", "y_shape"), [("n", ("n", "q")), ("n", ("q",)), (3, ("p", "q")), (3, ("p", 70))])
def test_an_operand_of_an_epilogue_broadcasts_where_its_sizes_turn_out_to_be_1(
    bench: Bench, rows: str | int, y_shape: tuple[str | int, ...]
) -> None:
    builder = bench.builder()
    x, w = builder.param("x", tensor((rows, 5))), builder.param("w", tensor((5, 70)))
    result = builder.emit("add", builder.emit("matmul", x, w), builder.param("y", tensor(y_shape)))
    function = bench.add(builder, result)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-9, 9, shape).astype(np.float32) for shape in ((3, 5), (5, 70))]  # float32 holds all sums
    for p, q in itertools.product((1, 3), (1, 70)):
        sizes: dict[str | int, int] = {"n": 3, "p": p, "q": q, 70: 70}
        y = rng.integers(-9, 9, [sizes[dim] for dim in y_shape])
        inputs[2:] = [y.astype(np.float32)]
        np.testing.assert_array_equal(bench.run(function, *inputs)[0], inputs[0] @ inputs[1] + inputs[2])
    assert "sum + y_line_value" in bench.module.get_source()  # it is an epilogue, in the loop of the sums


_SIZES = ("n", "m", "k", "n+2", 1, 3)
_OPS: dict[str, Any] = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum}
_NUM_CHAINS = 60


def _add_chain(builder: Builder, choose: random.Random) -> Value:
    """Return the result of a few elementwise ops with operands of unrelated sizes; half the time hidden by a sum."""
    values: list[Any] = [builder.emit("sum", builder.param("sizes", tensor(("n", "m", "k"))))]
    for index in range(choose.randint(2, 4)):
        shape = tuple(choose.choice(_SIZES) for _ in range(choose.randint(1, 2)))
        values.append(builder.param(f"x{index}", tensor(shape)))
    for _ in range(choose.randint(1, 4)):
        operands = [choose.choice(values), values[-1]]  # the last one, so that no op is dead
        choose.shuffle(operands)
        values.append(builder.emit(choose.choice(list(_OPS)), *operands))
    result: Value = builder.emit("sum", values[-1]) if choose.random() < 0.5 else values[-1]
    return result


def _numpy_result(function: Function, inputs: list[NDArray]) -> NDArray | None:
    """Return numpy's result in int64; ``None`` if sizes do not broadcast."""
    values: dict[Value, NDArray] = dict(zip(function.params, inputs, strict=True))
    for binding in function.bindings:
        operands = [values[operand].astype(np.int64) for operand in binding.operands]
        try:
            result = operands[0].sum() if binding.op.name == "sum" else _OPS[binding.op.name](*operands)
        except ValueError:
            return None
        values[binding.result] = np.asarray(result)
    return values[function.results[0]]


@pytest.fixture(scope="module")
def find_chain(module_bench: Bench) -> Callable[[int], tuple[Function, list[PackedFunction]]]:
    """Return a function returning any of many chains, as C and for the host; all are compiled at once."""
    bench, choose = module_bench, random.Random(7)
    for _ in range(_NUM_CHAINS):
        builder = bench.builder()
        bench.add(builder, _add_chain(builder, choose))
    reference = host.byoc_codegen(bench.functions, CompileContext("host", None, {})).module
    assert reference is not None

    def find(index: int) -> tuple[Function, list[PackedFunction]]:
        function = bench.functions[index]
        return function, [module.get_function(function.name) for module in (bench.module, reference)]

    return find


@settings(max_examples=600, deadline=None)
@given(
    index=st.integers(0, _NUM_CHAINS - 1),
    sizes=st.fixed_dictionaries(dict.fromkeys("nmk", st.integers(0, 4))),
    seed=st.integers(0, 99),
)
def test_chains_give_what_numpy_gives_or_an_error(
    find_chain: Callable[[int], tuple[Function, list[PackedFunction]]], index: int, sizes: dict[str, int], seed: int
) -> None:
    function, compiled = find_chain(index)
    rng = np.random.default_rng(seed)
    inputs: list[NDArray] = []
    for param in function.params:
        assert isinstance(param.type, TensorType)
        shape = [evaluate(dim, sizes) for dim in param.type.shape or ()]
        # Sums and products of these few stay integers that float32 holds.
        inputs.append(rng.integers(-1, 2, shape).astype(np.float32) * (param.name != "sizes"))
    expected = _numpy_result(function, inputs)
    for packed in compiled:
        if expected is None:
            with pytest.raises((CallError, ExecutionError)):
                _call(packed, *inputs)
        else:
            np.testing.assert_array_equal(_call(packed, *inputs), expected, strict=False)
