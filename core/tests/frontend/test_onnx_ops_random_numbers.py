"""Ops with random numbers: shapes, dtypes and distributions, the numbers of a seed, and fresh numbers without a seed.

ONNX leaves the numbers to the implementation, so the numbers of ONNX Runtime differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Case, build_node_model

Array = npt.NDArray[Any]

WITHOUT_KERNEL = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""The numbers of ONNX Runtime are no oracle."""


def _runner(op_type: str, inputs: Sequence[Any], *, opset: int = 22, **attrs: Any) -> Callable[[], Any]:
    """Return a function running a model of a node on inputs."""
    case = Case([None if item is None else np.asarray(item) for item in inputs], attrs)
    run = VirtualMachine(build(from_onnx(build_node_model(op_type, opset, case)), []))["main"]
    arrays = [array for array in case.inputs if array is not None]
    return lambda: np.asarray(run(*arrays))


_SHAPE = (200, 300)
_X = np.full(_SHAPE, 0.25, np.float32)
_CASES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "Bernoulli": ([_X], {}),
    "Multinomial": ([np.zeros((200, 7), np.float32)], {"sample_size": 300}),
    "RandomNormal": ([], {"shape": _SHAPE}),
    "RandomNormalLike": ([_X], {}),
    "RandomUniform": ([], {"shape": _SHAPE}),
    "RandomUniformLike": ([_X], {}),
}


@pytest.mark.parametrize("name", sorted(_CASES))
@pytest.mark.parametrize("opset", [15, 22, 26])
def test_a_seed_gives_the_same_numbers_in_every_run(name: str, opset: int) -> None:
    inputs, attrs = _CASES[name]
    run, other = (_runner(name, inputs, opset=opset, seed=seed, **attrs) for seed in (3.0, 4.0))
    first = run()
    assert first.shape == _SHAPE
    np.testing.assert_array_equal(first, run())
    np.testing.assert_array_equal(first, _runner(name, inputs, opset=opset, seed=3.5, **attrs)())
    assert (first != other()).any()


@pytest.mark.parametrize("name", sorted(_CASES))
@pytest.mark.parametrize("seed", [None, float("nan")])
def test_without_a_seed_each_run_has_other_numbers(name: str, seed: float | None) -> None:
    inputs, attrs = _CASES[name]
    own: dict[str, Any] = {} if seed is None else {"seed": seed}
    run = _runner(name, inputs, **attrs, **own)
    assert (run() != run()).any()


@pytest.mark.parametrize(
    ("name", "attrs", "wanted"),
    [
        ("RandomUniform", {"seed": 7.0}, lambda state: state.uniform(0, 1, (3, 4))),
        ("RandomUniform", {"seed": 7.0, "low": -2.0, "high": 5.0}, lambda state: state.uniform(-2, 5, (3, 4))),
        ("RandomNormal", {"seed": 7.0}, lambda state: state.randn(3, 4)),
        ("RandomNormal", {"seed": 7.0, "mean": 3.0, "scale": 0.5}, lambda state: state.normal(3, 0.5, (3, 4))),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_numbers_of_a_seed_are_those_of_numpy(
    name: str, attrs: dict[str, Any], wanted: Callable[[np.random.RandomState], Array], dtype: str
) -> None:
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    expected = wanted(np.random.RandomState(7)).astype(dtype)
    result = _runner(name, [], shape=(3, 4), dtype=element_type, **attrs)()
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected)
    like = _runner(f"{name}Like", [np.zeros((3, 4), dtype)], **attrs)()
    np.testing.assert_array_equal(like, expected)
    like = _runner(f"{name}Like", [np.zeros((3, 4), np.int32)], dtype=element_type, **attrs)()
    np.testing.assert_array_equal(like, expected)


def test_large_and_negative_seeds_count_modulo_words() -> None:
    first = _runner("RandomUniform", [], shape=(5,), seed=-1.0)()
    np.testing.assert_array_equal(first, np.random.RandomState(2**32 - 1).uniform(0, 1, 5).astype(np.float32))
    first = _runner("RandomUniform", [], shape=(5,), seed=float(2**33 + 2**12))()
    np.testing.assert_array_equal(first, np.random.RandomState(2**12).uniform(0, 1, 5).astype(np.float32))


def _is_near(mean: float, expected: float, deviation: float, count: int) -> bool:
    """Return whether a mean is within six deviations of its distribution."""
    return bool(abs(mean - expected) < 6 * deviation / count**0.5)


@pytest.mark.parametrize("seed", [None, 5.0])
def test_distributions(seed: float | None) -> None:
    own: dict[str, Any] = {} if seed is None else {"seed": seed}
    count = 60000
    uniform = _runner("RandomUniform", [], shape=_SHAPE, low=2.0, high=6.0, **own)().astype(np.float64)
    assert 2 <= uniform.min() < 2.1
    assert 5.9 < uniform.max() < 6
    assert _is_near(uniform.mean(), 4, 4 / 12**0.5, count)
    normal = _runner("RandomNormal", [], shape=_SHAPE, mean=-3.0, scale=2.0, **own)().astype(np.float64)
    assert _is_near(normal.mean(), -3, 2, count)
    assert _is_near(((normal + 3) ** 2).mean(), 4, 4 * 2**0.5, count)
    assert abs((np.abs(normal + 3) < 2).mean() - 0.6827) < 0.02


@pytest.mark.parametrize("seed", [None, 5.0])
@pytest.mark.parametrize("dtype", ["bool", "float32", "int64", None])
def test_draws_of_zero_and_one(seed: float | None, dtype: str | None) -> None:
    attrs: dict[str, Any] = {} if seed is None else {"seed": seed}
    if dtype is not None:
        attrs["dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    probabilities = np.repeat(np.array([0, 0.2, 0.9, 1]), 20000).reshape(4, 20000)
    result = _runner("Bernoulli", [probabilities], **attrs)()
    assert (result.dtype, result.shape) == (np.dtype(dtype or "float64"), (4, 20000))
    assert set(np.unique(result).tolist()) == {0, 1}
    means = result.astype(np.float64).mean(axis=1)
    assert (means[0], means[3]) == (0, 1)
    assert _is_near(means[1], 0.2, 0.4, 20000)
    assert _is_near(means[2], 0.9, 0.3, 20000)


@pytest.mark.parametrize("seed", [None, 5.0])
@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_draws_of_classes(seed: float | None, dtype: int) -> None:
    attrs: dict[str, Any] = {"dtype": dtype} if seed is None else {"seed": seed, "dtype": dtype}
    shares = np.array([[0.1, 0.0, 0.2, 0.7], [0.25, 0.25, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
    with np.errstate(divide="ignore"):
        logits = (np.log(shares) + np.array([[50.0], [-900.0], [0.0]])).astype(np.float32)
    result = _runner("Multinomial", [logits], sample_size=20000, **attrs)()
    assert (result.shape, result.dtype) == ((3, 20000), np.dtype("int32" if dtype == TensorProto.INT32 else "int64"))
    for row, own in zip(result, shares, strict=True):
        counts = np.bincount(row, minlength=4)
        assert counts.size == 4
        for share, found in zip(own, counts / 20000, strict=True):
            assert found == share or _is_near(found, share, (share * (1 - share)) ** 0.5, 20000)
    (only,) = set(_runner("Multinomial", [np.zeros((2, 1), np.float32)], sample_size=3)().reshape(-1).tolist())
    assert only == 0


# Dropout

_DATA = np.random.default_rng(1).standard_normal((40, 50)).astype(np.float32)


def _dropout(
    data: Array,
    ratio: float | None,
    training: bool | None,
    constants: Collection[int],
    num_outputs: int = 2,
    ratio_dtype: str = "float32",
    **attrs: Any,
) -> Callable[..., tuple[Array, ...]]:
    inputs = [
        data,
        None if ratio is None else np.array(ratio, ratio_dtype),
        None if training is None else np.array(training),
    ]
    case = Case(inputs, attrs, constants, num_outputs)
    run = VirtualMachine(build(from_onnx(build_node_model("Dropout", 13, case)), []))["main"]
    given = [array for index, array in enumerate(inputs) if array is not None and index not in constants]

    def call() -> tuple[Array, ...]:
        results = run(*given)
        return tuple(map(np.asarray, results)) if isinstance(results, tuple) else (np.asarray(results),)

    return call


@pytest.mark.parametrize("constants", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize("ratio", [None, 0.0, 0.3, 0.75])
def test_dropout_in_training(ratio: float | None, constants: Collection[int]) -> None:
    """Ratio and mode are constants, or inputs of the model."""
    y, mask = _dropout(_DATA, ratio, True, constants, seed=11)()
    share = np.float32(0.5 if ratio is None else ratio)
    wanted = np.random.RandomState(11).uniform(0, 1, _DATA.shape) >= share
    np.testing.assert_array_equal(mask, wanted)
    np.testing.assert_allclose(y, np.where(wanted, _DATA / (1 - share), 0), rtol=1e-6)
    (alone,) = _dropout(_DATA, ratio, True, constants, num_outputs=1, seed=11)()
    np.testing.assert_array_equal(alone, y)


@pytest.mark.parametrize("constants", [(), (1,), (2,), (1, 2)])
@pytest.mark.parametrize(("ratio", "training"), [(0.3, False), (None, None), (0.3, None)])
def test_dropout_at_inference(ratio: float | None, training: bool | None, constants: Collection[int]) -> None:
    y, mask = _dropout(_DATA, ratio, training, constants)()
    np.testing.assert_array_equal(y, _DATA)
    assert mask.dtype == np.bool_
    assert mask.all()


def test_dropout_without_a_seed_draws_a_mask_in_each_run() -> None:
    call = _dropout(_DATA, 0.4, True, (1, 2))
    (first, mask), (second, other) = call(), call()
    assert (mask != other).any()
    assert (first != second).any()
    for y, kept in ((first, mask), (second, other)):
        np.testing.assert_allclose(y, np.where(kept, _DATA / np.float32(0.6), 0), rtol=1e-6)
        assert _is_near(kept.mean(), 0.6, 0.24**0.5, kept.size)


@pytest.mark.parametrize("ratio_dtype", ["float16", "float64"])
@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_dropout_of_other_dtypes(dtype: str, ratio_dtype: str) -> None:
    data = _DATA.astype(dtype)
    y, mask = _dropout(data, 0.5, True, (), seed=2, ratio_dtype=ratio_dtype)()
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, np.where(mask, data * 2, 0))


# Several ops, and the passes around them


def _model(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], shape: Sequence[Any] = (40,)) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _ops(executable: byoc_core.Executable) -> list[str]:
    return sorted(str(row["op"]) for row in executable.report_data["ops"])


def _draw(output: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node("RandomUniformLike", ["x"], [output], **attrs)


def test_two_ops_without_a_seed_have_other_numbers_and_two_with_the_same_seed_do_not() -> None:
    executable = build(from_onnx(_model([_draw("a"), _draw("b")], ["a", "b"])), [])
    a, b = map(np.asarray, VirtualMachine(executable)["main"](np.zeros(40, np.float32)))
    assert (a != b).any()
    assert _ops(executable) == ["random.seed", "random.seed", "random.uniform", "random.uniform"]
    executable = build(from_onnx(_model([_draw("a", seed=1.0), _draw("b", seed=1.0)], ["a", "b"])), [])
    a, b = map(np.asarray, VirtualMachine(executable)["main"](np.zeros(40, np.float32)))
    np.testing.assert_array_equal(a, b)


def test_readers_of_random_numbers_see_the_same_numbers() -> None:
    nodes = [_draw("a"), helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Add", ["a", "b"], ["c"])]
    executable = build(from_onnx(_model(nodes, ["a", "b", "c"])), [])
    a, b, c = map(np.asarray, VirtualMachine(executable)["main"](np.zeros(40, np.float32)))
    np.testing.assert_array_equal(a, -b)
    np.testing.assert_array_equal(c, 0)


def test_unread_random_numbers_are_not_drawn() -> None:
    nodes = [_draw("a"), helper.make_node("Neg", ["x"], ["y"])]
    assert _ops(build(from_onnx(_model(nodes, ["y"])), [])) == ["negative"]


def test_random_numbers_of_dynamic_shapes() -> None:
    nodes = [_draw("a"), helper.make_node("Add", ["a", "x"], ["y"])]
    run = VirtualMachine(build(from_onnx(_model(nodes, ["y"], ["n", "m"])), []))["main"]
    for shape in ((2, 3), (400, 1)):
        first, second = (np.asarray(run(np.ones(shape, np.float32))) for _ in range(2))
        assert first.shape == shape
        assert first.min() >= 1
        assert (first != second).any()


@pytest.mark.parametrize("rounds", [5, 400])
def test_each_round_of_a_loop_draws_anew(rounds: int) -> None:
    """Few rounds are unrolled."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["goes"], ["again"]),
            helper.make_node("RandomUniform", [], ["drawn"], shape=[6]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
        ],
        [
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            helper.make_tensor_value_info("drawn", TensorProto.FLOAT, [6]),
        ],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["count", "go"], ["y"], body=body)],
        "rounds",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(True), "go"), numpy_helper.from_array(np.array(rounds), "count")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    call = VirtualMachine(build(from_onnx(model), []))["main"]
    result = np.asarray(call())
    assert result.shape == (rounds, 6)
    assert len({row.tobytes() for row in result}) == rounds


def test_saved_models_draw_anew(tmp_path: Path) -> None:
    executable = build(from_onnx(_model([_draw("a")], ["a"])), [])
    path = tmp_path / "model.byoc"
    executable.save(path)
    calls = [VirtualMachine(byoc_core.load(path))["main"] for _ in range(2)]
    found = {np.asarray(call(np.zeros(40, np.float32))).tobytes() for call in calls for _ in range(2)}
    assert len(found) == 4


_ERRORS: list[tuple[str, Sequence[Any], Mapping[str, Any], str]] = [
    ("RandomUniform", [], {}, "lacks attribute `shape`"),
    ("RandomUniform", [], {"shape": (2, -1)}, "attribute `shape` has a negative size; got (2, -1)"),
    ("RandomNormal", [], {"shape": (2,), "seed": float("inf")}, "attribute `seed` is not finite; got inf"),
    (
        "RandomNormal",
        [],
        {"shape": (2,), "dtype": TensorProto.INT32},
        "has random numbers of a dtype other than floats; got int32, expected a floating-point dtype",
    ),
    ("RandomUniformLike", [np.zeros(3, np.int64)], {}, "has random numbers of a dtype other than floats; got int64"),
    ("Multinomial", [np.zeros(3, np.float32)], {}, "has an input of a wrong rank; got 1, expected 2"),
    ("Multinomial", [np.zeros((1, 3), np.float32)], {"sample_size": 0}, "attribute `sample_size` is too small; got 0"),
    (
        "Multinomial",
        [np.zeros((1, 3), np.float32)],
        {"dtype": TensorProto.FLOAT},
        "attribute `dtype` is unknown; got float32, expected int32 or int64",
    ),
    ("Dropout", [_DATA, np.array(1.0, np.float32), np.array(True)], {}, "the ratio is out of range; got 1.0"),
    ("Dropout", [_DATA, np.zeros(2, np.float32), np.array(True)], {}, "the ratio is not a scalar; got (2,)"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "problem"), _ERRORS)
def test_errors(op_type: str, inputs: Sequence[Any], attrs: Mapping[str, Any], problem: str) -> None:
    model = build_node_model(op_type, 22, Case(inputs, attrs, range(1, len(inputs))))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert problem in str(caught.value)
