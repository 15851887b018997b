"""Sizes that differ between branches, or change from round to round, against ONNX Runtime and numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import script as R
from byoc_core.frontend.onnx import from_onnx
from byoc_core.frontend.onnx.ops.rounds import MAX_UNROLLED_NODES
from byoc_core.ir import IRModule, TensorType
from byoc_core.ir.verifier import verify
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser

Check = Callable[..., IRModule]
Run = Callable[..., Sequence[Any]]

BOTH = (np.array(True), np.array(False))


def _model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {graph}')


def _ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def _scalar(value: int) -> Any:
    return np.array(value, "int64")


def _check(text: str, feeds: dict[str, Any], check_model: Check, tmp_path: Path | None = None) -> IRModule:
    """Compare the interpreter and the machine with ONNX Runtime, the machine from a saved artifact too."""
    model = _model(text)
    module = check_model(model, feeds)
    verify(module)
    assert R.parse(str(module), constants=module.constants) == module
    executable = byoc_core.build(module, [])
    if tmp_path is not None:
        executable.save(tmp_path / "model.byoc")
        executable = byoc_core.load(tmp_path / "model.byoc")
    results = byoc_core.VirtualMachine(executable).run("main", feeds)
    expected = byoc_core.transform.evaluate_function(module, "main", list(feeds.values()))
    for result, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        np.testing.assert_array_equal(result, wanted)
    return module


@pytest.mark.parametrize("condition", BOTH)
def test_branches_of_different_sizes(condition: Any, check_model: Check, tmp_path: Path) -> None:
    """The two results differ in the same way, so that they fit each other behind the branches."""
    text = """g (bool c, float[n, 4] x) => (float[p, q] y) { a, b = If(c) <
        then_branch = t () => (u, v) { u = Neg(x) v = Abs(x) },
        else_branch = e () => (u1, v1) { u1 = Concat<axis = 1>(x, x) v1 = Add(u1, u1) }> y = Add(a, b) }"""
    _check(text, {"c": condition, "x": _ints(3, 4)}, check_model, tmp_path)


@pytest.mark.parametrize("condition", BOTH)
def test_branches_with_a_constant_and_equal_sizes_twice(condition: Any, check_model: Check) -> None:
    text = """g (bool c, float[n, n] x) => (float[p, q] y) <float[2, 2] k = {1, 2, 3, 4}> { y = If(c) <
        then_branch = t () => (a) { a = Identity(k) }, else_branch = e () => (b) { b = Neg(x) }> }"""
    module = _check(text, {"c": condition, "x": _ints(3, 3)}, check_model)
    (result_type,) = module["main"].result_types
    assert isinstance(result_type, TensorType)
    assert len(set(map(str, result_type.shape or ()))) == 2


@pytest.mark.parametrize("condition", BOTH)
def test_a_size_decided_in_a_branch(condition: Any, check_model: Check) -> None:
    text = """g (bool c, float[n] x) => (int64[r, p] y) { y = If(c) <
        then_branch = t () => (a) { a = NonZero(x) },
        else_branch = e () => (b) { d = Concat<axis = 0>(x, x) b = NonZero(d) }> }"""
    _check(text, {"c": condition, "x": _ints(5)}, check_model)


_CACHED = """g (float[1, 4] first, int64 m, float limit) => (float[r, 4] keys, float[s, 4] values, float[1, 4] last) {
    keys, values, last = Loop(m, , first, first, first) <
    body = b (int64 i, bool t, float[k, 4] k_in, float[v, 4] v_in, float[1, 4] x) => (c_out, k_out, v_out, y) {
        half = Constant<value = float {0.5}>() new_key = Mul(x, half) new_value = Add(x, half)
        k_out = Concat<axis = 0>(k_in, new_key) v_out = Concat<axis = 0>(v_in, new_value)
        turned = Transpose(k_out) scores = MatMul(x, turned) weights = Softmax(scores) y = MatMul(weights, v_out)
        total = ReduceSum<keepdims = 0>(y) c_out = Less(total, limit) }> }"""


@pytest.mark.parametrize(("rounds", "limit"), [(0, 99), (1, 99), (6, 99), (20, 5), (20, -99)])
def test_a_cache_grows_until_the_data_end_the_rounds(
    rounds: int, limit: float, check_model: Check, tmp_path: Path
) -> None:
    """The keys and the values of attention grow alike: their products fit in every round."""
    feeds = {"first": np.abs(_ints(1, 4)) / 4, "m": _scalar(rounds), "limit": np.array(limit, "float32")}
    model = _model(_CACHED)
    module = check_model(model, feeds, exact=False, terms=256)
    verify(module)
    byoc_core.build(module, []).save(tmp_path / "model.byoc")
    results = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc")).run("main", feeds)
    expected = byoc_core.transform.evaluate_function(module, "main", list(feeds.values()))
    for result, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)


@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("going", BOTH)
def test_scan_outputs_of_an_unknown_number_of_rounds(count: int, going: Any, check_model: Check) -> None:
    text = """g (float[3] x, int64 m, bool c) => (float[3] y, float[k, 3] all, int64[k] numbers) {
        y, all, numbers = Loop(m, c, x) <body = b (int64 i, bool t, float[3] v) => (c_out, w, a, n) {
            c_out = Identity(t) w = Neg(v) a = Add(v, x) n = Add(i, i) }> }"""
    _check(text, {"x": _ints(3), "m": _scalar(count), "c": going}, check_model)


@pytest.mark.parametrize("known", ["<int64 k = {300}>", ""])
def test_slices_of_a_size_told_by_a_round(known: str, check_model: Check) -> None:
    """The slices are equal in size; the size is known in the round alone."""
    count = "" if known else ", int64 k"
    text = f"""g (float[4] x{count}) => (float[4] y, int64[p, q, r] z) {known} {{ y, z = Loop(k, , x) <
        body = b (int64 i, bool t, float[4] v) => (c_out, w, s) {{
            c_out = Identity(t) w = Neg(v) s = NonZero(w) }}> }}"""
    feeds = {"x": np.array([1, 0, 2, 0], np.float32)}
    _check(text, feeds if known else {**feeds, "k": _scalar(3)}, check_model)


def test_slices_of_different_sizes_are_an_error_of_the_call() -> None:
    text = """g (float[4] x, int64 k) => (float[4] y, int64[p, q, r] z) { y, z = Loop(k, , x) <
        body = b (int64 i, bool t, float[4] v) => (c_out, w, s) {
            one = Constant<value = float {1}>() c_out = Identity(t) w = Add(v, one) s = NonZero(w) }> }"""
    machine = byoc_core.VirtualMachine(byoc_core.build(from_onnx(_model(text)), []))
    for rounds in (2, 3):
        with pytest.raises(byoc_core.ByocError, match="tensors of different sizes; got 4, 3"):
            machine.run("main", {"x": np.array([-1, 2, -3, 4], np.float32), "k": _scalar(rounds)})


def test_rounds_in_rounds_and_branches_in_rounds(check_model: Check) -> None:
    text = """g (float[n] x, int64 m) => (float[r] y) <int64 two = {2}, int64 zero = {0}> { y = Loop(m, , x) <
        body = b (int64 i, bool t, float[k] v) => (c_out, w) { c_out = Identity(t) u = Loop(i, , v) <
            body = d (int64 j, bool s, float[q] p) => (s_out, o) { s_out = Identity(s) o = Concat<axis = 0>(p, x) }>
            odd = Mod(i, two) even = Equal(odd, zero) w = If(even) <
                then_branch = f () => (h) { h = Concat<axis = 0>(u, u) },
                else_branch = e () => (h1) { h1 = Identity(u) }> }> }"""
    for rounds in (0, 1, 3):
        _check(text, {"x": _ints(2), "m": _scalar(rounds)}, check_model)


def test_many_rounds_of_a_known_number(check_model: Check) -> None:
    text = f"""g (float[n] x) => (float[r] y) <int64 m = {{{MAX_UNROLLED_NODES + 1}}}> {{ y = Loop(m, , x) <
        body = b (int64 i, bool t, float[k] v) => (c_out, w) {{
            c_out = Identity(t) w = Concat<axis = 0>(v, x) }}> }}"""
    _check(text, {"x": _ints(2)}, check_model)


_CHANGES: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "grow": ("w{0} = Concat<axis = 0>(v{0}, x)", lambda value, x: np.concatenate([value, x])),
    "double": ("w{0} = Concat<axis = 0>(v{0}, v{0})", lambda value, x: np.concatenate([value, value])),
    "keep": ("w{0} = Neg(v{0})", lambda value, x: -value),
    "shrink": ("w{0} = Slice(v{0}, zero1, half, zero1)", lambda value, x: value[:1]),
}


@given(
    st.lists(st.sampled_from(list(_CHANGES)), min_size=1, max_size=3),
    st.integers(0, 4),
    st.integers(1, 5),
)
def test_values_that_change_in_different_ways(kinds: Sequence[str], rounds: int, size: int) -> None:
    """Each carried value has a size of its own unless it changes like another; numpy is the oracle."""
    count = len(kinds)
    names = {letter: ", ".join(f"{letter}{index}" for index in range(count)) for letter in "vwy"}
    params = ", ".join(f"float[k{index}] v{index}" for index in range(count))
    outputs = ", ".join(f"float[r{index}] y{index}" for index in range(count))
    body = " ".join(_CHANGES[kind][0].format(index) for index, kind in enumerate(kinds))
    text = f"""g (float[n] x, int64 m) => ({outputs}) <int64[1] zero1 = {{0}}, int64[1] half = {{1}}> {{
        {names["y"]} = Loop(m, , {", ".join(["x"] * count)}) <body = b (int64 i, bool t, {params})
            => (c_out, {names["w"]}) {{ c_out = Identity(t) {body} }}> }}"""
    x = _ints(size)
    results = byoc_core.VirtualMachine(byoc_core.build(from_onnx(_model(text)), [])).run(
        "main", {"x": x, "m": _scalar(rounds)}
    )
    for kind, result in zip(kinds, results if isinstance(results, tuple) else (results,), strict=True):
        value = x
        for _ in range(rounds):
            value = _CHANGES[kind][1](value, x)
        np.testing.assert_array_equal(result, value)
