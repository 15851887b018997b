"""Every type rule against the real shape and dtype of the op's kernel, with known and with symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.opset.opdef import Trait
from byoc_core.opset.registry import OpRegistry
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_FLOATS = st.sampled_from(["float32", "float64", "float16", "bfloat16"])
_NUMBERS = st.sampled_from(["float32", "float64", "int8", "int32", "int64", "uint8"])
_SIZES = st.integers(1, 5)


def _shape(draw: Draw, low: int = 0, high: int = 4) -> Shape:
    return tuple(draw(st.lists(_SIZES, min_size=low, max_size=high)))


def _broadcast_partner(draw: Draw, shape: Shape) -> Shape:
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.booleans()) else size for size in kept)


def _binary(dtypes: st.SearchStrategy[str]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape, dtype = _shape(draw), draw(dtypes)
        operands = [(shape, dtype), (_broadcast_partner(draw, shape), dtype)]
        return operands[:: draw(st.sampled_from([1, -1]))], {}

    return case


def _unary(dtypes: st.SearchStrategy[str], low: int = 0, **attrs: st.SearchStrategy[Any]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        return [(_shape(draw, low), draw(dtypes))], {name: draw(values) for name, values in attrs.items()}

    return case


def _where(draw: Draw) -> Case:
    shape = _shape(draw)
    return [
        (_broadcast_partner(draw, shape), "bool"),
        (shape, "int32"),
        (_broadcast_partner(draw, shape), "int32"),
    ], {}


def _matmul(draw: Draw) -> Case:
    m, k, n = (draw(_SIZES) for _ in range(3))
    batch = _shape(draw, high=2)
    left: Shape = draw(st.sampled_from([(k,), (*batch, m, k)]))
    right: Shape = draw(st.sampled_from([(k,), (*_broadcast_partner(draw, batch), k, n)]))
    return [(left, "float32"), (right, "float32")], {}


def _dense(draw: Draw) -> Case:
    inner = draw(_SIZES)
    return [((*_shape(draw, high=3), inner), "float32"), ((draw(_SIZES), inner), "float32")], {}


def _along_axis(count: int) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = _shape(draw, 1)
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        dtype = draw(_FLOATS)
        return [(shape, dtype), *[((shape[axis],), dtype)] * count], {"axis": axis}

    return case


def _layer_norm(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    inner = tuple(shape[axis] for axis in axes)
    return [(shape, "float32"), (inner, "float32"), (inner, "float32")], {"axes": axes}


def _windows(draw: Draw, kernel: tuple[int, int]) -> dict[str, Any]:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    return {
        "strides": draw(pair),
        "dilation": draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        "padding": tuple(draw(st.integers(0, kernel[axis % 2] - 1)) for axis in range(4)),
    }


def _conv2d(draw: Draw) -> Case:
    groups, per_group, out = (draw(st.integers(1, 3)) for _ in range(3))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    image = (draw(st.integers(5, 9)), draw(st.integers(5, 9)))
    data_layout, kernel_layout = (
        draw(st.sampled_from(["NCHW", "NHWC"])),
        draw(st.sampled_from(["OIHW", "IOHW", "HWIO"])),
    )
    sizes = {"N": draw(_SIZES), "C": groups * per_group, "H": image[0], "W": image[1]}
    weights = {"O": groups * out, "I": per_group, "H": kernel[0], "W": kernel[1]}
    operands = [
        (tuple(sizes[a] for a in data_layout), "float32"),
        (tuple(weights[a] for a in kernel_layout), "float32"),
    ]
    attrs = {"groups": groups, "data_layout": data_layout, "kernel_layout": kernel_layout}
    return operands, {**_windows(draw, kernel), **attrs}


def _pool(*, average: bool) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
        shape = (draw(_SIZES), draw(st.integers(5, 9)), draw(st.integers(5, 9)), draw(st.integers(5, 9)))
        attrs = {
            **_windows(draw, kernel),
            "pool_size": kernel,
            "ceil_mode": draw(st.booleans()),
            "layout": draw(st.sampled_from(["NCHW", "NHWC"])),
        }
        if average:
            attrs["count_include_pad"] = draw(st.booleans())
        return [(shape, draw(_FLOATS))], attrs

    return case


def _reshape(draw: Draw) -> Case:
    shape = _shape(draw)
    target = list(draw(st.permutations(shape)))
    if len(target) > 1 and draw(st.booleans()):
        target = [target[0] * target[1], *target[2:]]
    if target and draw(st.booleans()):
        target[draw(st.integers(0, len(target) - 1))] = -1
    return [(shape, "int8")], {"shape": tuple(target)}


def _permute(draw: Draw) -> Case:
    shape = _shape(draw)
    axes = tuple(draw(st.permutations(range(len(shape)))))
    return [(shape, "float32")], {"axes": draw(st.sampled_from([None, axes]))}


def _broadcast(draw: Draw) -> Case:
    shape = _shape(draw)
    return [(_broadcast_partner(draw, shape), "float32")], {"shape": shape}


def _concat(draw: Draw) -> Case:
    shape = list(_shape(draw, 1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        shape[axis] = draw(st.integers(0, 5))
        parts.append((tuple(shape), "int32"))
    return parts, {"axis": axis}


def _split(draw: Draw) -> Case:
    shape = list(_shape(draw, 1))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sections = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=4)))
    shape[axis] = sum(sections)
    return [(tuple(shape), "float32")], {"sections": sections, "axis": axis}


def _take(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return [(shape, "float32"), (_shape(draw, high=2), "int64")], {"axis": axis, "mode": "clip"}


def _slice(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    axes = tuple(draw(st.lists(st.integers(0, len(shape) - 1), unique=True)))
    bound = st.integers(-7, 7) | st.sampled_from([2**63 - 1, -(2**63) + 1])

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in axes)

    strides = st.sampled_from([-2, -1, 1, 2, 3])
    return [(shape, "int32")], {"axes": axes, "begin": each(bound), "end": each(bound), "strides": each(strides)}


def _pad(draw: Draw) -> Case:
    shape = _shape(draw)
    widths = tuple(draw(st.integers(0, 3)) for _ in range(2 * len(shape)))
    return [(shape, "float32")], {"pad_width": widths, "pad_value": 1.0}


def _reduce(dtypes: st.SearchStrategy[str]) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = _shape(draw)
        axes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1))))) if shape else ()
        attrs = {"axis": draw(st.sampled_from([None, axes])), "keepdims": draw(st.booleans())}
        return [(shape, draw(dtypes))], attrs

    return case


def _argmax(draw: Draw) -> Case:
    shape = _shape(draw, 1)
    return [(shape, draw(_NUMBERS))], {
        "axis": draw(st.integers(-len(shape), len(shape) - 1)),
        "keepdims": draw(st.booleans()),
    }


_ANY = _NUMBERS | st.just("bool")
_CASES: dict[str, Callable[[Draw], Case]] = {
    **dict.fromkeys(["add", "multiply", "maximum", "minimum"], _binary(_ANY)),
    **dict.fromkeys(["subtract", "divide", "power"], _binary(_NUMBERS)),
    **dict.fromkeys(["equal", "less", "less_equal", "greater", "greater_equal"], _binary(_ANY)),
    **dict.fromkeys(["logical_and", "logical_or"], _binary(st.just("bool"))),
    "logical_not": _unary(st.just("bool")),
    "negative": _unary(st.sampled_from(["float32", "int8", "bfloat16"])),
    **dict.fromkeys(["abs", "nn.relu"], _unary(_NUMBERS)),
    **dict.fromkeys(["exp", "log", "sqrt", "tanh", "sigmoid", "erf", "nn.leaky_relu"], _unary(_FLOATS)),
    "clip": _unary(_FLOATS, min=st.sampled_from([None, 0.0]), max=st.sampled_from([None, 6.0])),
    "nn.gelu": _unary(_FLOATS, approximate=st.sampled_from(["none", "tanh"])),
    "cast": _unary(_ANY, dtype=_ANY | _FLOATS),
    "where": _where,
    "matmul": _matmul,
    "nn.dense": _dense,
    "nn.bias_add": _along_axis(1),
    "nn.batch_norm": _along_axis(4),
    "nn.softmax": _along_axis(0),
    "nn.layer_norm": _layer_norm,
    "nn.conv2d": _conv2d,
    "nn.max_pool2d": _pool(average=False),
    "nn.avg_pool2d": _pool(average=True),
    "reshape": _reshape,
    "permute_dims": _permute,
    "broadcast_to": _broadcast,
    "concat": _concat,
    "split": _split,
    "take": _take,
    "strided_slice": _slice,
    "nn.pad": _pad,
    "sum": _reduce(_NUMBERS),
    "max": _reduce(_NUMBERS),
    "mean": _reduce(_FLOATS),
    "min": _reduce(_NUMBERS),
    "prod": _reduce(_NUMBERS),
    "logsumexp": _reduce(_FLOATS),
    "argmax": _argmax,
    "argmin": _argmax,
}


def test_every_case_is_of_an_op_that_computes(rule_cases: dict[str, Any]) -> None:
    assert set(rule_cases) == {name for name, op in default_ops().items() if op.kernel is not None} == set(KERNELS)


def test_registry_is_one_object_and_complete() -> None:
    ops = default_ops()
    assert isinstance(ops, OpRegistry)
    assert default_ops() is ops
    assert {"call", "call_dps_packed", "call_packed", "composite", "if", "loop"} <= set(ops)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_every_op_is_documented(name: str) -> None:
    op = default_ops()[name]
    first, _, rest = op.doc.partition("\n\n")
    assert first.endswith(".")
    assert rest.startswith("Shapes")
    assert all(spec.doc.endswith(".") for spec in op.attrs)


def test_commutative_ops_are_exactly_those_that_commute() -> None:
    rng = np.random.default_rng(5)
    for name, op in default_ops().items():
        if op.kernel is None or len(op.operands) != 2 or Trait.ELEMENTWISE not in op.traits:
            continue
        dtype = "bool" if name.startswith("logical") else "int32"
        attrs = op.normalise_attrs({})
        x, y = (rng.integers(0, 9, 200).astype(dtype) for _ in range(2))
        commutes = np.array_equal(np.asarray(op.kernel(x, y, **attrs)), np.asarray(op.kernel(y, x, **attrs)))
        assert commutes == op.has_trait(Trait.COMMUTATIVE), name


def test_elementwise_and_reshaping_traits_hold() -> None:
    reshaping = {name for name, op in default_ops().items() if op.has_trait(Trait.RESHAPING)}
    assert reshaping == {"expand_dims", "reshape", "squeeze"}
    x = np.random.default_rng(6).uniform(0.1, 3.0, (4, 5)).astype(np.float32)
    for name, op in default_ops().items():
        if op.kernel is None or not op.has_trait(Trait.ELEMENTWISE) or len(op.operands) != 1:
            continue
        if name in ("bitwise_not", "logical_not"):
            continue
        attrs = op.normalise_attrs({"dtype": "int32"} if name in ("cast", "bitcast") else {})
        whole = np.asarray(op.kernel(x, **attrs))
        # Vectorised and scalar code of numpy may differ in the last places.
        np.testing.assert_allclose(whole[1:3, ::2], np.asarray(op.kernel(x[1:3, ::2], **attrs)), rtol=2**-20)


def test_selecting_ops_keep_the_order_of_elements() -> None:
    """A law of selection: of elements changed one by one, keeping their order, the same are selected."""
    selecting = sorted(name for name, op in default_ops().items() if op.has_trait(Trait.SELECTING))
    assert {"concat", "nn.max_pool2d", "nn.adaptive_max_pool1d", "reshape", "split", "strided_slice"} <= set(selecting)
    rng = np.random.default_rng(7)
    for name in selecting:
        op = default_ops()[name]
        assert op.kernel is not None
        assert op.canonical_cases, name
        for case in op.canonical_cases:
            arrays = case.arrays(rng, "int32")
            attrs = op.normalise_attrs(case.attrs)
            found, changed = (op.kernel(*operands, **attrs) for operands in (arrays, [3 * x - 700 for x in arrays]))
            pairs = zip(found, changed, strict=True) if isinstance(found, tuple | list) else [(found, changed)]
            assert all(np.array_equal(3 * np.asarray(x) - 700, np.asarray(y)) for x, y in pairs), name
