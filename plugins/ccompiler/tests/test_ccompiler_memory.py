"""Permissions of compiled functions for callers: scratch memory handed over, outputs in the memory of inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_core import VirtualMachine, build, parse
from byoc_core.dims import evaluate, parse_dim
from byoc_core.ir import Function, tensor
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench


def _random(shape: int | Sequence[int], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _pools(bench: Bench, size: int | str) -> Any:
    builder = bench.builder()
    value = builder.param("x", tensor((1, 4, size, 16)))
    for _ in range(6):
        value = builder.emit("nn.max_pool2d", value, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))
    return bench.add(builder, value)


@pytest.mark.parametrize("size", [16, "n"])
def test_the_workspace_holds_what_was_allocated(bench: Bench, size: int | str) -> None:
    function = _pools(bench, size)
    traits = bench.module.call_traits(function.name)
    # Five intermediates of 4 KiB live two at a time.
    assert evaluate(traits.workspace_nbytes, {"n": 16}) == 2 * 4096
    x = _random((1, 4, 16, 16))
    (expected,) = bench.run(function, x)
    memory = np.full(2 * 4096 + 64, 0xFF, np.uint8)
    start = -memory.ctypes.data % 64
    out = np.empty_like(expected)
    bench.module.get_function(function.name).impl(x, out, memory[start : start + 2 * 4096])
    np.testing.assert_array_equal(out, expected)


PRODUCTS = """
class M:
    @R.function
    def main(x: R.Tensor(("n", 32), "float32"), w: R.Tensor((32, 32), "float32")):
        a = R.matmul(x, w)
        b = R.nn.softmax(a)
        c = R.matmul(b, w)
        d = R.nn.softmax(c)
        return d
"""


def test_a_call_in_the_machine_allocates_nothing() -> None:
    """The generated code's own allocation is replaced by a failure, reached only by calls without a workspace."""
    executable = build(parse(PRODUCTS), backends=["ccompiler"])
    (module,) = executable.modules
    assert isinstance(module, CSourceModule)
    failing, count = re.subn(r"\(char \*\)byoc_new_workspace\(.*\);", "NULL;", module.get_source())
    assert count == 1
    assert "alloc(" not in failing
    broken = CSourceModule(failing, module.signatures, options=module.options, traits=module.traits)
    inputs = _random((5, 32)), _random((32, 32), 1)
    expected = VirtualMachine(executable)["main"](*inputs)
    machine = VirtualMachine(type(executable)(executable.program, (broken,), executable.constants))
    np.testing.assert_array_equal(machine["main"](*inputs), expected)


def test_what_stands_in_for_a_function_is_called_without_workspace() -> None:
    """As machine code too: a function without workspace refuses a given workspace."""
    executable = build(parse(PRODUCTS), backends=["ccompiler"])
    (module,) = executable.modules
    (symbol,) = module.function_names
    bench = Bench()
    builder = bench.builder()
    x, w = builder.param("x", tensor(("n", 32))), builder.param("w", tensor((32, 32)))
    function = bench.add(builder, builder.emit("matmul", x, w))
    assert bench.module.call_traits(function.name).workspace_nbytes == 0
    other = bench.module.get_function(function.name)
    machine = VirtualMachine(executable, externs={symbol: other})
    inputs = _random((5, 32)), _random((32, 32), 1)
    (expected,) = bench.run(function, *inputs)
    np.testing.assert_array_equal(machine["main"](*inputs), expected)


UNARY = ("nn.relu", "negative", "tanh", "abs")
BINARY = ("add", "subtract", "multiply", "maximum")
SHAPES = {"full": ("n", 3, 8), "row": (8,), "column": (3, 1), "one": (1, 1, 1)}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_declared_pairs_share_memory(data: st.DataObject) -> None:
    """Random graphs of elementwise ops: each declared pair gives the results of separate buffers, bit for bit."""
    bench = Bench(opt_level=data.draw(st.sampled_from([2, 3])))
    builder = bench.builder()
    kinds = ["full", *data.draw(st.lists(st.sampled_from(sorted(SHAPES)), min_size=1, max_size=3))]
    params = [builder.param(f"x{k}", tensor(SHAPES[kind])) for k, kind in enumerate(kinds)]
    full = [p for p, kind in zip(params, kinds, strict=True) if kind == "full"]
    for _ in range(data.draw(st.integers(1, 8))):
        left = data.draw(st.sampled_from(full))
        if data.draw(st.booleans()):
            full.append(builder.emit(data.draw(st.sampled_from(UNARY)), left))
        else:
            right = data.draw(st.sampled_from([*params, *full]))
            full.append(builder.emit(data.draw(st.sampled_from(BINARY)), left, right))
    results = data.draw(st.lists(st.sampled_from(full[kinds.count("full") :]), min_size=1, max_size=3))
    function = bench.add(builder, *results)
    pairs = bench.module.call_traits(function.name).in_place
    # What is simplified first may give an input as it is, or one result twice: both are copied.
    prepared = prepare_regions([function], bench.constants, FAMILIES)[function.name]
    returned_params = set(prepared.results) & set(prepared.params)
    assert pairs or returned_params or len(set(prepared.results)) < len(prepared.results)
    sizes = [tuple(37 if isinstance(dim, str) else dim for dim in SHAPES[kind]) for kind in kinds]
    inputs = [_random(size, seed) for seed, size in enumerate(sizes)]
    expected = bench.run(function, *inputs)
    implementation = bench.module.get_function(function.name).impl
    for output, source in pairs:
        copies = [array.copy() for array in inputs]
        outputs = [np.empty_like(array) for array in expected]
        outputs[output] = copies[source]
        implementation(*copies, *outputs)
        for actual, reference in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(actual, reference)


def test_all_inputs_and_the_output_in_one_memory(bench: Bench) -> None:
    builder = bench.builder()
    x, y = builder.param("x", tensor((1000,))), builder.param("y", tensor((1000,)))
    function = bench.add(builder, builder.emit("tanh", builder.emit("add", builder.emit("multiply", x, y), x)))
    assert bench.module.call_traits(function.name) == CallTraits(in_place=((0, 0), (0, 1)))
    array = _random(1000)
    (expected,) = bench.run(function, array, array)
    bench.module.get_function(function.name).impl(array, array, array)
    np.testing.assert_array_equal(array, expected)


def _pairs(bench: Bench, function: Function) -> Any:
    return bench.module.call_traits(function.name).in_place


def test_what_is_not_certain_is_not_declared(bench: Bench) -> None:
    functions: dict[str, tuple[Any, tuple[tuple[int, int], ...]]] = {}
    builder = bench.builder()
    x, row = builder.param("x", tensor((4, 4))), builder.param("row", tensor((4,)))
    functions["an input that broadcasts"] = (bench.add(builder, builder.emit("add", x, row)), ((0, 0),))
    builder = bench.builder()
    x = builder.param("x", tensor((4, 4)))
    functions["another dtype"] = (bench.add(builder, builder.emit("cast", x, dtype="int32")), ())
    builder = bench.builder()
    x, y = (builder.param(name, tensor((size,))) for name, size in (("x", "n"), ("y", "m")))
    functions["sizes that may differ"] = (bench.add(builder, builder.emit("add", x, y)), ())
    builder = bench.builder()
    x = builder.param("x", tensor((4, 4)))
    functions["two loops"] = (bench.add(builder, builder.emit("nn.relu", builder.emit("nn.softmax", x))), ())
    builder = bench.builder()
    x, w = builder.param("x", tensor((4, 4))), builder.param("w", tensor((4, 4)))
    functions["a matrix product"] = (bench.add(builder, builder.emit("nn.relu", builder.emit("matmul", x, w))), ())
    builder = bench.builder()
    x = builder.param("x", tensor((4, 4)))
    functions["a result that is an input"] = (bench.add(builder, builder.emit("nn.relu", x), x), ())
    builder = bench.builder()
    x = builder.param("x", tensor((4, 4)))
    y = builder.emit("nn.relu", x)
    functions["a result given twice"] = (bench.add(builder, y, y), ())
    builder = bench.builder()
    x = builder.param("x", tensor((4, 4)))
    functions["a transposed input"] = (
        bench.add(builder, builder.emit("add", x, builder.emit("permute_dims", x, axes=(1, 0)))),
        (),
    )
    assert {case: _pairs(bench, function) for case, (function, _) in functions.items()} == {
        case: pairs for case, (_, pairs) in functions.items()
    }


def test_the_tutorial_form_permits_nothing() -> None:
    bench = Bench(tutorial=True)
    builder = bench.builder()
    x = builder.param("x", tensor((parse_dim("n"),)))
    function = bench.add(builder, builder.emit("nn.relu", builder.emit("negative", x)))
    assert bench.module.call_traits(function.name) == CallTraits()
