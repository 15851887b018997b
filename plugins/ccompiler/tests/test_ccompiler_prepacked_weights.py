"""Swappable weights of products arrive in panels: packed once for each value, with the numbers of constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.kernels.blocks import packed_panels
from byoc_ccompiler.kernels.panel_order import PanelOrder
from byoc_core.artifact import Executable
from byoc_core.dims import Dim, symbol
from byoc_core.ir import IRModule, Value, declare_weights, merge_modules, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import BindParams
from byoc_core.vm import VirtualMachine
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.weighted_modules import emit

Arrays = dict[str, np.ndarray]


@given(
    depth=st.integers(1, 5),
    columns=st.integers(1, 9),
    vectors=st.integers(1, 4),
    lanes=st.sampled_from([1, 2, 4]),
    is_transposed=st.booleans(),
)
def test_the_form_of_a_weight_is_the_packed_constant(
    depth: int, columns: int, vectors: int, lanes: int, is_transposed: bool
) -> None:
    matrix = np.random.default_rng(depth).standard_normal((depth, columns * lanes)).astype(np.float32)
    stored = np.ascontiguousarray(matrix.T) if is_transposed else matrix
    order = PanelOrder(depth, columns * lanes, vectors * lanes, is_transposed)
    function = replace(order.to_function(tensor(stored.shape)), name="main")
    module = IRModule({"main": function}, FunctionBuilder("main").constants)
    found = VirtualMachine(byoc_core.build(module, []))["main"](stored)
    assert isinstance(found, np.ndarray)
    assert found.shape == stored.shape
    np.testing.assert_array_equal(found.reshape(-1), packed_panels(matrix, vectors * lanes, lanes))


def perceptron(rows: Dim, widths: Sequence[int], ops: Sequence[str]) -> tuple[IRModule, dict[str, tuple[int, ...]]]:
    """Return a network of products and rectifiers, and the shape of each weight."""
    fb = FunctionBuilder("main")
    x: Value = fb.param("x", tensor((rows, widths[0])))
    shapes: dict[str, tuple[int, ...]] = {}
    for number, op in enumerate(ops):
        sizes = widths[number : number + 2]
        shapes[f"w{number}"] = tuple(reversed(sizes)) if op == "nn.dense" else tuple(sizes)
        x = emit(fb, "nn.relu", emit(fb, op, x, fb.param(f"w{number}", tensor(shapes[f"w{number}"]))))
    return IRModule({"main": fb.finish(x)}, fb.constants), shapes


def draw(shapes: Mapping[str, tuple[int, ...]], seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def build(module: IRModule) -> Executable:
    executable = byoc_core.build(module, ["ccompiler"])
    executable.require_offload(1.0)
    return executable


@settings(max_examples=max(4, settings().max_examples // 20))  # compiles three times
@given(
    rows=st.sampled_from([1, 2, 5, 33, symbol("n")]),
    widths=st.lists(st.sampled_from([16, 48, 80, 144, 20]), min_size=2, max_size=4),
    data=st.data(),
)
def test_results_equal_those_of_constants_and_a_swap_equals_a_fresh_build(
    rows: Dim, widths: list[int], data: st.DataObject
) -> None:
    ops = [data.draw(st.sampled_from(["nn.dense", "matmul"])) for _ in widths[1:]]
    module, shapes = perceptron(rows, widths, ops)
    first, second = draw(shapes, 1), draw(shapes, 2)
    before, fresh = (build(declare_weights(module, values)) for values in (first, second))
    swapped = before.with_weights(second)
    assert swapped.to_bytes() == fresh.to_bytes()
    x = np.random.default_rng(3).standard_normal((rows if isinstance(rows, int) else 7, widths[0])).astype(np.float32)
    found = [VirtualMachine(executable)["main"](x) for executable in (before, swapped)]
    if all(width % 16 == 0 for width in widths):  # else kernels without packing have another order of sums
        wanted = [VirtualMachine(build(BindParams(dict(values))(module)))["main"](x) for values in (first, second)]
        for have, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(have, want)
    reference = x.astype(np.float64)
    for op, weight in zip(ops, second.values(), strict=True):
        reference = np.maximum(reference @ (weight.T if op == "nn.dense" else weight), 0)
    np.testing.assert_allclose(found[1], reference, rtol=1e-3, atol=1e-3 * np.abs(reference).max())


def program_nbytes(executable: Executable) -> int:
    """Return the bytes of the distinct constants read by calls."""
    modules = {digest: array.nbytes for module in executable.modules for digest, array in module.constants.items()}
    program = {ref.digest: executable.constants[ref.digest].nbytes for ref in executable.program.constants}
    return sum({**modules, **program}.values())


@pytest.mark.parametrize("is_swappable", [False, True])
def test_two_entries_read_one_packed_form(is_swappable: bool) -> None:
    """A prompt of any number of tokens, and a step of one token: weights are once in the artifact and in memory."""
    ops, widths = ["matmul", "nn.dense"], [256, 1024, 512]
    prefill, shapes = perceptron(symbol("n"), widths, ops)
    decode, _ = perceptron(1, widths, ops)
    values = draw(shapes, 0)

    def with_weights(module: IRModule) -> IRModule:
        return declare_weights(module, values) if is_swappable else BindParams(dict(values))(module)

    executable = build(merge_modules({"prefill": with_weights(prefill), "decode": with_weights(decode)}))
    weights = sum(array.nbytes for array in values.values())
    assert program_nbytes(executable) == weights
    # Beside the packed forms, an artifact of swappable weights keeps the weights.
    assert sum(array.nbytes for array in executable.constants.values()) == weights * (2 if is_swappable else 1)
    machine = VirtualMachine(executable)
    x = np.random.default_rng(1).standard_normal((1, widths[0])).astype(np.float32)
    np.testing.assert_allclose(machine["prefill"](x), machine["decode"](x), rtol=1e-4, atol=1e-4)


def packed_names(executable: Executable) -> set[str]:
    """Return the weights read by no call in their own order."""
    return {weight.name for weight in executable.weights.weights if not weight.constants}


def test_weights_with_another_reader_or_ragged_columns_keep_their_order() -> None:
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((4, 32)))
    weights = {"once": (32, 48), "ragged": (48, 33), "twice": (48, 48), "result": (48, 48)}
    params = {name: fb.param(name, tensor(shape)) for name, shape in weights.items()}
    y = emit(fb, "matmul", x, params["once"])
    z = emit(fb, "matmul", emit(fb, "matmul", y, params["twice"]), emit(fb, "exp", params["twice"]))
    results = (emit(fb, "matmul", y, params["ragged"]), emit(fb, "matmul", z, params["result"]), params["result"])
    module = IRModule({"main": fb.finish(*results)}, fb.constants)
    executable = byoc_core.build(declare_weights(module, draw(weights, 0)), ["ccompiler"])
    # `twice` is read by a region and by a derivation: each has its own constant.
    assert packed_names(executable) >= {"once"}
    assert packed_names(executable).isdisjoint({"ragged", "result"})


def test_a_tied_embedding_is_packed_beside_its_table() -> None:
    fb = FunctionBuilder("main")
    tokens, table = fb.param("tokens", tensor((5,), "int64")), fb.param("table", tensor((96, 32)))
    embedded = emit(fb, "take", table, tokens, axis=0)
    module = IRModule({"main": fb.finish(emit(fb, "nn.dense", embedded, table))}, fb.constants)
    values = draw({"table": (96, 32)}, 0)
    executable = byoc_core.build(declare_weights(module, values), ["ccompiler"])
    found = VirtualMachine(executable)["main"](np.arange(5))
    reference = values["table"][:5].astype(np.float64) @ values["table"].T
    np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-4)
