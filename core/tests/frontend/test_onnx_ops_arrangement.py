"""Triangles, blocks of pixels and padding of ONNX, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from onnx import TensorProto, helper, numpy_helper, parser

from core.tests.frontend.conftest import Array, Case

NEWEST = 26  # the newest opset of the oracle

Cases = list[dict[str, Any]]


def _count(*shape: int, dtype: str = "float32") -> Any:
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


def _i64(*values: int) -> Any:
    return np.array(values, np.int64)


def _case(*inputs: npt.ArrayLike | None, constants: tuple[int, ...] = (), **attrs: object) -> dict[str, Any]:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants}


def _trilu(opset: int) -> Cases:
    x = _count(2, 4, 5)
    cases = [_case(x), _case(x, upper=0), _case(_count(3, 3, dtype="int64"), np.array(1), constants=(1,), upper=0)]
    for k in (-9, -2, 0, 3, 9):
        cases += [_case(x, np.array(k), constants=(1,), upper=upper) for upper in (0, 1)]
    return [*cases, _case(x, _i64(1), constants=(1,)), _case(np.ones((2, 3), bool), upper=0)]


def _eye_like(opset: int) -> Cases:
    x = _count(3, 5)
    dtypes = (TensorProto.INT32, TensorProto.DOUBLE, TensorProto.INT64)
    return [*(_case(x, k=k) for k in (-4, -1, 0, 2, 9)), _case(x), *(_case(x, dtype=d, k=1) for d in dtypes)]


def _depth_to_space(opset: int) -> Cases:
    cases = [_case(_count(2, 12, 2, 3), blocksize=2)]
    if opset >= 11:
        cases += [_case(_count(1, 18, 2, 3), blocksize=3, mode=mode) for mode in ("DCR", "CRD")]
    return cases


def _space_to_depth(opset: int) -> Cases:
    return [_case(_count(2, 3, 4, 6), blocksize=2), _case(_count(1, 1, 3, 6), blocksize=3)]


def _pad(opset: int) -> Cases:
    x = _count(3, 4, 5)
    widths = [(0, 1, 2, 2, 0, 1), (0, -1, 2, 2, 0, -2), (-1, -1, -1, 0, 0, -2), (0, 0, 0, 0, 0, 0), (-3, 0, 0, 0, 0, 1)]
    modes = ["constant", "edge", "reflect", *(["wrap"] if opset >= 19 else [])]
    cases = []
    for mode in modes:
        for pads in widths:
            if mode != "constant" and pads[0] == -3:
                continue  # nothing is left to continue
            if opset < 11:
                cases.append(_case(x, pads=pads, mode=mode, value=1.5))
            else:
                cases.append(_case(x, _i64(*pads), np.float32(1.5), constants=(1, 2), mode=mode))
    if opset < 11:
        return cases
    cases += [_case(x, _i64(*widths[1]), constants=(1,)), _case(x, _i64(*widths[0]), np.float32(2), constants=(1,))]
    odd = 2**53 + 1
    for dtype, value in (("int32", -7), ("int64", odd), ("int64", -odd), ("int64", 2**62), ("uint64", 2**64 - 1)):
        y, number = _count(2, 3, dtype=dtype), np.array(value, dtype)
        cases.append(_case(y, _i64(1, -1, 0, 2), number, constants=(1, 2)))
        cases.append(_case(y, _i64(0, 2, 1, 0), number, constants=(1,)))
    if opset >= 13:
        cases.append(_case(np.array([True, False]), _i64(1, 2), np.array(True), constants=(1, 2)))
    if opset >= 18:
        attrs: dict[str, Any] = {"constants": (1, 3)}
        cases.append(_case(x, _i64(2, -1, 0, 3), None, _i64(-1, 0), **attrs))
        cases += [_case(x, _i64(2, 1, 0, 3), None, _i64(2, -2), mode=mode, **attrs) for mode in modes[1:]]
    return cases


def _center_crop_pad(opset: int) -> Cases:
    x = _count(5, 4, 6)
    return [
        *(_case(x, _i64(*shape), constants=(1,)) for shape in ((5, 4, 6), (2, 2, 2), (3, 1, 5), (8, 9, 7), (2, 7, 6))),
        _case(x, _i64(9, 2), constants=(1,), axes=(2, 0)),
        _case(x, _i64(3), constants=(1,), axes=(-1,)),
        _case(x.astype("int64"), _i64(8), constants=(1,), axes=(1,)),
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "CenterCropPad": _center_crop_pad,
    "DepthToSpace": _depth_to_space,
    "EyeLike": _eye_like,
    "Pad": _pad,
    "SpaceToDepth": _space_to_depth,
    "Trilu": _trilu,
}


def test_op_equals_onnx_runtime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(set(_CASES) - {"CenterCropPad"}))
def test_op_imports_with_dynamic_sizes(
    op_type: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](NEWEST):
        inputs = arguments["inputs"]
        if op_type == "Pad" and len(inputs) > 2 and inputs[2] is not None and 2 not in arguments["constants"]:
            inputs[2] = inputs[2].reshape(())  # a scalar of known rank
        check_case(op_type, NEWEST, make_case(**arguments), dynamic=True)


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_space_to_depth_has_modes_since_opset_28(
    mode: str, node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    x = _count(2, 8, 2, 3)
    spread = node_model("DepthToSpace", 13, make_case([x], {"blocksize": 2, "mode": mode}))
    (image,) = run(spread, {"i0": x})
    gathered = from_onnx(node_model("SpaceToDepth", 28, make_case([image], {"blocksize": 2, "mode": mode})))
    np.testing.assert_array_equal(run(gathered, {"i0": image})[0], x)


def _causal_mask() -> onnx.ModelProto:
    """Return a model hiding all later steps from each step, behind a past of any length."""
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["past"], ["past_shape"]),
            helper.make_node("Gather", ["past_shape", "zero"], ["length"]),
            helper.make_node("Add", ["length", "one"], ["k"]),
            helper.make_node("Trilu", ["scores", "k"], ["hidden"], upper=1),
        ],
        "mask",
        [
            helper.make_tensor_value_info("past", TensorProto.FLOAT, ["past_length"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["steps", "total"]),
        ],
        [onnx.ValueInfoProto(name="hidden")],
        [numpy_helper.from_array(np.array(value), name) for value, name in ((0, "zero"), (1, "one"))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(("past", "steps"), [(0, 4), (3, 1), (2, 5)])
def test_trilu_behind_a_past_of_symbolic_length(past: int, steps: int, check_model: Callable[..., Any]) -> None:
    feeds = {"past": np.zeros(past, np.float32), "scores": _count(steps, past + steps)}
    module = check_model(_causal_mask(), feeds)
    (binding,) = module["main"].bindings
    assert str(binding.attrs["k"]) == "past_length+1"


def test_center_crop_pad_of_a_symbolic_size_by_a_known_number(
    node_model: Callable[..., onnx.ModelProto], check_model: Callable[..., Any]
) -> None:
    """A size differing from the symbolic size by a number is a crop or a padding like any other."""
    for number in (-3, 0, 5):
        graph = helper.make_graph(
            [
                helper.make_node("Shape", ["x"], ["shape"]),
                helper.make_node("Add", ["shape", "number"], ["goal"]),
                helper.make_node("CenterCropPad", ["x", "goal"], ["y"]),
            ],
            "frame",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["h", "w"])],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(_i64(number, number), "number")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        check_model(model, {"x": _count(4, 7)})


def test_a_padding_number_that_no_float_equals_stays_exact(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    """Values exact in a float become `nn.pad`, known to passes; the rest is joined."""
    for number, op in ((2**53, "nn.pad"), (2**53 + 1, "concat"), (2**63 - 1, "concat"), (-(2**63), "nn.pad")):
        module = from_onnx(node_model("Pad", 13, make_case([_i64(1, 2), _i64(1, 2), np.array(number)], {}, (1, 2))))
        assert module["main"].bindings[-1].op.name == op


_X = _count(3, 4)

_REFUSED: list[tuple[str, int, list[Any], dict[str, Any], str]] = [
    (
        "Pad",
        11,
        [_X, _i64(1, 0, 0)],
        {},
        "the padding does not fit the axes; got (1, 0, 0) for (0, 1), expected 4 values",
    ),
    (
        "Pad",
        18,
        [_X, _i64(1, 0, 0, 1), None, _i64(0, -2)],
        {},
        "the padding does not fit the axes; got (1, 0, 0, 1) for (0, 0), expected 4 values",
    ),
    (
        "Pad",
        11,
        [_X, _i64(-2, 0, -2, 1)],
        {},
        "crops more than the size of axis 0; got (-2, -2, 0, 1), expected at most 3",
    ),
    ("Pad", 11, [_X, _i64(1, 0, 0, 0), np.zeros(2, np.float32)], {}, "the padding value is not a scalar; got [2]"),
    (
        "Pad",
        10,
        [_X],
        {"pads": (1, 0, 0, 0), "mode": "circular"},
        "attribute `mode` is unknown; got circular, expected constant or reflect or edge",
    ),
    (
        "Pad",
        19,
        [_X, _i64(-3, 0, 1, 0)],
        {"mode": "wrap"},
        "op `nn.border_pad`, operand `x=lv0`: axis 0 is empty and has no element to repeat",
    ),
    ("Trilu", 14, [_X, _i64(1, 2)], {}, "input `k` is not a single element; got [1, 2]"),
    ("EyeLike", 9, [_i64(1, 2)], {}, "the input is not a matrix; got [2], expected rank 2"),
    (
        "DepthToSpace",
        13,
        [_count(1, 6, 2, 2)],
        {"blocksize": 2},
        "op `depth_to_space`, operand `x=i0`: axis 1 is not divisible into blocks; got 6, expected a multiple of 4",
    ),
    ("CenterCropPad", 18, [_X, _i64(2)], {}, "the shape does not fit the axes; got [2], expected 2 sizes"),
]


@pytest.mark.parametrize(("op_type", "opset", "inputs", "attrs", "text"), _REFUSED)
def test_variant_is_refused(
    op_type: str,
    opset: int,
    inputs: list[Any],
    attrs: dict[str, Any],
    text: str,
    node_model: Callable[..., onnx.ModelProto],
    make_case: type[Case],
) -> None:
    constants = [index for index, array in enumerate(inputs) if index and array is not None]
    with pytest.raises(FrontendError) as caught:
        from_onnx(node_model(op_type, opset, make_case(inputs, attrs, constants)))
    assert str(caught.value) == f"ONNX model, node `the_node` ({op_type}): {text}"


def test_crops_or_pads_of_unknown_difference(check_case: Callable[..., IRModule], make_case: type[Case]) -> None:
    for size in (2, 9):
        check_case("CenterCropPad", 18, make_case([_X, _i64(size, 9)], {}, (1,)), dynamic=True)


_PADS = """<ir_version: 10, opset_import: ["" : 19]> g (float[h, w] x) => (float[i, j] y) {
    shape = Shape(x) four = Constant<value = int64[1] {4}>() zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>() two = Constant<value = int64[1] {2}>()
    height = Gather(shape, zero) width = Gather(shape, one) rest = Mod(height, four) less = Sub(two, rest)
    pads = Concat<axis = 0>(PADS) y = Pad<mode = "MODE">(x, pads) }"""


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    ("pads", "is_symbolic"),
    [("rest, zero, one, rest", True), ("zero, rest, zero, zero", True), ("less, zero, zero, less", False)],
)
def test_pads_of_symbolic_size(mode: str, pads: str, is_symbolic: bool, check_model: Callable[..., IRModule]) -> None:
    """Pads that may be negative, and so crop, are computed at run time."""
    model = parser.parse_model(_PADS.replace("PADS", pads).replace("MODE", mode))
    for height in (5, 6, 8):
        module = check_model(model, {"x": np.arange(5 * height, dtype=np.float32).reshape(height, 5)})
    computed = {"as_size", "range"} & {binding.op.name for binding in module["main"].bindings}
    assert bool(computed) != is_symbolic


def test_pads_of_another_number_are_refused() -> None:
    model = parser.parse_model(_PADS.replace("PADS", "rest, rest").replace("MODE", "edge"))
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == (
        "ONNX model, node `y` (Pad): the padding does not fit the axes; got (h%4, h%4) for (0, 1), expected 4 values"
    )
