"""ONNX ops with data-dependent sizes, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Array, Case

OLDEST, NEWEST = 7, 26  # the newest opset of the oracle

Cases = list[dict[str, Any]]


def _case(*inputs: npt.ArrayLike, constants: tuple[int, ...] = (), outputs: int = 1, **attrs: object) -> dict[str, Any]:
    arrays = [np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs}


def _ints(*shape: int, seed: int = 0, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(0, 3, shape).astype(dtype)


def _nonzero(opset: int) -> Cases:
    dtypes = ("float32", "int64", "bool", "uint8")
    cases = [_case(_ints(3, 4, dtype=dtype)) for dtype in dtypes]
    return [*cases, _case(_ints(2, 3, 4)), _case(_ints(7)), _case(np.zeros((2, 2), np.float32))]


def _compress(opset: int) -> Cases:
    x, chosen = _ints(3, 4), np.array([True, False, True])
    cases = [_case(x, chosen, axis=0), _case(x, chosen[:2], axis=1), _case(x, chosen), _case(x, chosen, constants=(1,))]
    return [*cases, _case(x, chosen, axis=-2)] if opset >= 11 else cases


def _unique(opset: int) -> Cases:
    x = _ints(4, 3, seed=2)
    attrs: list[dict[str, Any]] = [{}, {"sorted": 0}, {"axis": 0}, {"axis": 1, "sorted": 0}, {"axis": -1}]
    cases = [_case(x, outputs=outputs, **given) for given in attrs for outputs in (1, 2, 4)]
    return [*cases, _case(_ints(9, dtype="int64"), outputs=4)]


def _range(opset: int) -> Cases:
    cases = [_case(*(np.array(item, dtype) for item in (2, 11, 3))) for dtype in ("int16", "int32", "int64")]
    floats = [np.float32(item) for item in (1.5, -2.25, -0.25)]
    return [*cases, _case(*floats), _case(*floats, constants=(0, 2)), _case(*(np.int64(item) for item in (3, 1, 1)))]


_CASES: dict[str, Callable[[int], Cases]] = {
    "Compress": _compress,
    "NonZero": _nonzero,
    "Range": _range,
    "Unique": _unique,
}


def _versions(op_type: str) -> list[int]:
    """Return the opsets changing the op, the oldest imported opset first."""
    since = {
        schema.since_version
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == op_type and schema.domain == "" and schema.since_version <= NEWEST
    }
    return sorted({max(version, OLDEST) for version in since} | {NEWEST})


@pytest.mark.parametrize(
    ("op_type", "opset"), [(op_type, opset) for op_type in sorted(_CASES) for opset in _versions(op_type)]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_op_equals_onnx_runtime(
    op_type: str, opset: int, dynamic: bool, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments), dynamic=dynamic)


@pytest.mark.parametrize("op_type", sorted(_CASES))
def test_constants_are_folded(
    op_type: str, node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    for arguments in _CASES[op_type](NEWEST):
        arguments["constants"] = tuple(range(len(arguments["inputs"])))
        model = node_model(op_type, NEWEST, make_case(**arguments))
        module = from_onnx(model)
        assert module["main"].bindings == ()
        for have, want in zip(run(module, {}), run(model, {}), strict=True):
            np.testing.assert_array_equal(have, want)
            assert have.dtype == want.dtype


def test_a_model_that_computes_with_a_size_that_it_learns() -> None:
    """The positive elements of ``x``, doubled, and ``0 .. k - 1`` beside, through the whole compiler."""
    graph = helper.make_graph(
        [
            helper.make_node("Greater", ["x", "zero"], ["positive"]),
            helper.make_node("Compress", ["x", "positive"], ["kept"]),
            helper.make_node("Add", ["kept", "kept"], ["twice"]),
            helper.make_node("NonZero", ["twice"], ["places"]),
            helper.make_node("Add", ["start", "three"], ["limit"]),
            helper.make_node("Range", ["start", "limit", "one"], ["numbers"]),
        ],
        "learns",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("start", TensorProto.INT64, []),
        ],
        [onnx.ValueInfoProto(name=name) for name in ("twice", "places", "numbers")],
        [
            numpy_helper.from_array(np.asarray(np.float32(0)), "zero"),
            numpy_helper.from_array(np.asarray(np.int64(3)), "three"),
            numpy_helper.from_array(np.asarray(np.int64(1)), "one"),
        ],
    )
    module = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert [str(result.type) for result in module["main"].results] == [
        'R.Tensor(("compress",), "float32")',
        'R.Tensor((1, "nonzero"), "int64")',
        'R.Tensor(("range",), "int64")',
    ]
    machine = VirtualMachine(build(module, []))
    for x in ([1, -2, 0, 3.5], [-1.0], []):
        twice, places, numbers = machine["main"](np.array(x, np.float32), np.int64(5))
        kept = [2 * item for item in x if item > 0]
        assert twice.tolist() == kept
        assert places.tolist() == [list(range(len(kept)))]
        assert numbers.tolist() == [5, 6, 7]


def test_a_size_that_the_model_names_already_gets_another_name() -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "names",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["nonzero"])],
        [onnx.ValueInfoProto(name="y")],
    )
    module = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    assert str(module["main"].results[0].type) == 'R.Tensor((1, "nonzero_1"), "int64")'


def test_a_long_range_of_constants_stays_an_op(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    bounds = [np.array(item, np.float32) for item in (0, 2**40, 0.5)]
    (binding,) = from_onnx(node_model("Range", NEWEST, make_case(bounds, constants=(0, 1, 2))))["main"].bindings
    assert binding.op.name == "range"


def test_bounds_of_one_element(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    bounds = [np.array([item]) for item in (1, 4, 1)]
    module = from_onnx(node_model("Range", NEWEST, make_case(bounds)))
    assert run(module, {f"i{index}": bound for index, bound in enumerate(bounds)})[0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"),
    [
        ("Range", [np.int64(0), np.int64(5), np.int64(0)], {}, "has a step of zero"),
        (
            "Compress",
            [np.zeros(2, np.float32), np.array([False, False, True])],
            {},
            "the condition holds beyond the end of the axis; got 2, expected < 2",
        ),
    ],
)
def test_constants_that_do_not_fit(
    op_type: str,
    inputs: list[Any],
    attrs: dict[str, Any],
    text: str,
    node_model: Callable[..., onnx.ModelProto],
    make_case: type[Case],
) -> None:
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model(op_type, NEWEST, make_case(inputs, attrs, tuple(range(len(inputs))))))
    assert str(caught.value) == f"ONNX model, node `the_node` ({op_type}): {text}"


_BOUNDS = (0, 2, 4, 5, 9, -1, -5, -6, 2**63 - 1, -(2**63))


@pytest.mark.parametrize("step", [1, 2, -1, -2])
def test_a_slice_between_bounds_that_are_data(
    step: int, node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """With a negative step, the oracle reads a stop of 2**63 - 1 differently: as the front, not as the end."""
    for size in (0, 1, 5):
        x = _ints(2, size)
        inputs = [x, np.array([0]), np.array([0]), np.array([1]), np.array([step])]
        model = node_model("Slice", NEWEST, make_case(inputs, constants=(3, 4)))
        module = from_onnx(model)
        for start, stop in itertools.product(_BOUNDS, _BOUNDS):
            feeds = {"i0": x, "i1": np.array([start]), "i2": np.array([stop])}
            is_own_way = step < 0 and stop == 2**63 - 1
            expected = x[:, :0] if is_own_way else run(model, feeds)[0]
            np.testing.assert_array_equal(run(module, feeds)[0], expected)


def test_a_slice_of_several_axes_between_data(check_case: Callable[..., IRModule], make_case: type[Case]) -> None:
    starts, stops = np.array([1, -3], np.int32), np.array([3, 4], np.int32)
    cases = [
        make_case([_ints(5, 4), starts, stops]),
        make_case([_ints(5, 4), starts, stops], constants=(1,)),
        make_case([_ints(5, 4), starts, stops, np.array([1, 0], np.int32)], constants=(2, 3)),
    ]
    for opset in (10, 11, 13, NEWEST):
        for case in cases:
            check_case("Slice", opset, case)


def test_slices_between_data_that_are_refused(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    x, bound = _ints(5), np.array([1])
    zero = node_model("Slice", NEWEST, make_case([x, bound, bound, np.array([0]), np.array([0])], constants=(3, 4)))
    axes = node_model("Slice", NEWEST, make_case([x, bound, np.array([1, 2])]))
    for model, problem in (
        (zero, "has a step of 0"),
        (axes, "axes, starts, ends and steps differ in number"),
    ):
        with pytest.raises(FrontendError) as caught:
            from_onnx(model)
        assert str(caught.value) == f"ONNX model, node `the_node` (Slice): {problem}"
