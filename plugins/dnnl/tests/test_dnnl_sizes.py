"""Symbolic sizes: programs for the shapes of calls, kept up to a bound, and numpy's kernels without a program."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import byoc_dnnl.backend as dnnl
import byoc_dnnl.engine
import byoc_dnnl.program
import numpy as np
import pytest
from byoc_core.backend.hooks import CompileContext, Rejection
from byoc_core.errors import CallError
from byoc_core.ir import tensor
from byoc_core.runtime.threads import num_threads
from byoc_dnnl.engine import MAX_PROGRAMS
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.library import VARIABLE
from byoc_dnnl.program import Program
from byoc_dnnl.reference import Reference

from plugins.dnnl.tests.dnnl_region import NDArray, Region, check_sums, emit

LENGTH = 2 * (16 * 9 + 16 * 9 + 100 + 16 + 8)
"""More than the number of operations behind any result of the network."""

UNFIT = "not all sizes of the symbols are compatible"


def network() -> Region:
    """Return two convolutions on images of any number and size, then the mean of each channel and a product."""
    region = Region()
    const = region.builder.const
    x = region.builder.param("x", tensor(("n", 3, "h", "w")))
    value = emit(region, "nn.conv2d", x, const(region.draw(16, 3, 3, 3)), padding=(1,) * 4)
    value = emit(region, "nn.relu", value)
    value = emit(region, "nn.conv2d", value, const(region.draw(16, 16, 3, 3)), padding=(1,) * 4)
    value = emit(region, "nn.max_pool2d", value, pool_size=(2, 2), strides=(2, 2))
    value = emit(region, "mean", value, axis=(2, 3), keepdims=False)
    return region.finish(emit(region, "nn.dense", value, const(region.draw(5, 16))))


def built_of(region: Region) -> BuiltRegion:
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    return built


def test_sizes_in_turn() -> None:
    region = network()
    built = built_of(region)
    assert not built.programs  # nothing is known of sizes when a module is made
    shapes = [(1, 3, 8, 8), (2, 3, 8, 8), (3, 3, 13, 20), (1, 3, 8, 8), (2, 3, 8, 8)]
    for shape in shapes:
        check_sums(region, [region.draw(*shape)], LENGTH)
    assert len(built.programs) == 3
    assert all(isinstance(program, Program) for program in built.programs.values())
    assert "ref" not in region.module.get_source("programs")


def test_attributes_hold_sizes() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n", "s", 24)))
    n, s = (dim for dim in x.type.shape[:2])  # type: ignore[union-attr, index]
    weights = region.builder.const(region.draw(24, 24))
    value = emit(region, "reshape", emit(region, "matmul", x, weights), shape=(n, s, 4, 6))
    value = emit(region, "permute_dims", value, axes=(0, 2, 1, 3))
    region.finish(emit(region, "reshape", emit(region, "nn.relu", value), shape=(n * 4, s * 6)))
    for shape in ((1, 7, 24), (3, 2, 24), (2, 64, 24)):
        check_sums(region, [region.draw(*shape)], 2 * 24 + 2)
    assert all(isinstance(program, Program) for program in built_of(region).programs.values())


def test_a_call_with_shapes_that_were_seen_plans_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    region = network()
    inputs = [region.draw(number, 3, 8, 8) for number in (1, 2)]
    for x in inputs:
        region.run(x)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(byoc_dnnl.planning, "Planner", refuse)
    for _ in range(3):
        for x in inputs:
            region.run(x)


def test_programs_that_were_not_used_for_longest_go() -> None:
    region = network()
    built = built_of(region)
    first = region.draw(1, 3, 8, 8)
    region.run(first)
    (program,) = built.programs.values()
    region.run(region.draw(2, 3, 8, 8))
    gone = weakref.ref([*built.programs.values()][1])
    for number in range(3, 3 * MAX_PROGRAMS):
        region.run(region.draw(number, 3, 8, 8))
        region.run(first)
        assert len(built.programs) <= MAX_PROGRAMS
    assert built.programs[num_threads(), (first.shape, (1, 5))] is program
    gc.collect()
    assert gone() is None


def test_large_programs_that_keep_memory_are_kept_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(byoc_dnnl.engine, "make_caller", lambda *_: None)  # the extension's programs keep none
    monkeypatch.setattr(byoc_dnnl.program, "make_program", lambda _: None)
    region = network()
    monkeypatch.setattr(byoc_dnnl.engine, "MAX_IDLE_NBYTES", 0)
    monkeypatch.setattr("byoc_dnnl.native.extension", lambda: None)  # with it they share what they need
    for number in range(1, 5):
        check_sums(region, [region.draw(number, 3, 8, 8)], LENGTH)
        assert [shapes[0][0] for _, shapes in built_of(region).programs] == [number]


def test_programs_are_kept_up_to_the_limit_of_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest program does not count, and a sum equal to the limit does not exceed the limit."""
    monkeypatch.setattr(byoc_dnnl.engine, "make_caller", lambda *_: None)  # the extension's programs keep none
    monkeypatch.setattr(byoc_dnnl.program, "make_program", lambda _: None)
    monkeypatch.setattr("byoc_dnnl.native.extension", lambda: None)
    region = network()
    held = dict[int, int]()
    for number in range(1, 4):
        region.run(region.draw(number, 3, 8, 8))
        program = [*built_of(region).programs.values()][-1]
        assert isinstance(program, Program)
        held[number] = program.idle_nbytes
        assert held[number] > 0

    default = byoc_dnnl.engine.MAX_IDLE_NBYTES

    def kept(limit: int) -> list[int]:
        monkeypatch.setattr(byoc_dnnl.engine, "MAX_IDLE_NBYTES", limit)
        again = network()
        for number in range(1, 4):
            again.run(again.draw(number, 3, 8, 8))
        return [shapes[0][0] for _, shapes in built_of(again).programs]

    assert kept(default) == [1, 2, 3]
    assert kept(held[1] + held[2]) == [1, 2, 3]
    assert kept(held[1] + held[2] - 1) == [2, 3]
    assert kept(held[2]) == [2, 3]
    assert kept(held[2] - 1) == [3]


def test_empty_tensors_and_what_has_no_primitive_are_computed_by_kernels() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n", "k")))
    region.finish(emit(region, "mean", emit(region, "nn.relu", x), axis=(1,)))
    for shape in ((3, 8), (0, 8), (3, 1), (3, 8)):  # oneDNN refuses to reduce one element
        if shape[0]:
            check_sums(region, [region.draw(*shape)], 2 * 8 + 4)
        else:
            assert region.run(region.draw(*shape))[0].shape == (0,)
    kinds = [type(program) for program in built_of(region).programs.values()]
    assert kinds == [Program, Reference, Reference]


def test_shapes_that_the_function_does_not_take_are_refused() -> None:
    region = network()
    x = np.zeros((2, 3, 8, 8), np.float32)
    for wrong in ((3, 5), (2, 4)):
        with pytest.raises(CallError):
            built_of(region)(x, np.zeros(wrong, np.float32))
    with pytest.raises(CallError) as caught:
        built_of(region)(np.zeros((2, 4, 8, 8), np.float32), np.zeros((2, 5), np.float32))
    expected = "graph function `f`, input 0 `x`: axis 1 has the wrong size; got [2, 4, 8, 8], expected [n, 3, h, w]"
    assert str(caught.value) == f"{expected} with h = 8, n = 2, w = 8"
    assert not built_of(region).programs


def test_a_static_region_takes_its_shapes_only() -> None:
    region = Region()
    region.finish(emit(region, "nn.relu", region.builder.param("x", tensor((2, 3)))))
    with pytest.raises(CallError) as caught:
        built_of(region)(np.zeros((2, 2), np.float32), np.zeros((2, 3), np.float32))
    text = "graph function `f`, input 0 `x`: axis 1 has the wrong size; got [2, 2], expected [2, 3]"
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "text"),
    [
        (
            "add",
            [("n", 4), ("m", 4)],
            {},
            f"{UNFIT}: broadcast: sizes 2 and 3 do not fit; expected equal sizes, or a size of 1",
        ),
        ("nn.relu", [("n", 0)], {}, "a tensor is empty at all trial sizes"),
        ("erf", [("n", 3)], {}, "`erf`: oneDNN has no such function"),
        ("nn.softmax", [("n", "m", 3)], {"axis": 1}, "`nn.softmax`: oneDNN has only a reference implementation"),
    ],
)
def test_refusals_of_ops_of_symbolic_sizes(
    op: str, shapes: Sequence[Sequence[int | str]], attrs: dict[str, Any], text: str
) -> None:
    region = Region()
    operands = [region.builder.param(f"x{index}", tensor(shape)) for index, shape in enumerate(shapes)]
    answer = region.judge(region.builder.bind(op, operands, attrs))
    assert isinstance(answer, Rejection)
    assert answer.text == text


@pytest.mark.parametrize("shrunk", [9, 900])
def test_sizes_too_small_for_the_windows_do_not_refuse_a_convolution(shrunk: int) -> None:
    """Windows behind others need inputs larger than the first trial sizes."""
    region = Region()
    x = region.builder.param("x", tensor(("n", 3, f"s//5-{shrunk}")))
    w = region.builder.param("w", tensor((4, 3, 8)))
    binding = region.builder.bind("nn.conv1d", [x, w], {"strides": [4]})
    assert not isinstance(region.judge(binding), Rejection)


def test_a_size_that_no_input_determines_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n*m", 4)))
    n = region.builder.param("y", tensor(("n", 4)))
    region.finish(emit(region, "nn.relu", x), emit(region, "nn.relu", n))
    result = dnnl.byoc_codegen([region.function], CompileContext("dnnl", None, {}))
    assert result.rejections["f"].text == "no input determines the size m"


def test_the_source_is_the_graph_and_what_was_made_so_far_is_told() -> None:
    region = network()
    source = region.source
    assert source.startswith("f\ngraph f(%0 x: float32[n, 3, h, w])")
    assert region.module.get_source("programs") == "f\n"
    for number in (2, 0):
        region.run(region.draw(number, 3, 8, 8))
    assert region.source == source
    first, *rest = region.module.get_source("programs").splitlines()
    threads = f"{num_threads()} thread{'s' if num_threads() > 1 else ''}"
    assert [first, rest[0]] == ["f", f"[2, 3, 8, 8], {threads}"]
    assert any(line.startswith("nn.conv2d + nn.relu  ") for line in rest)
    assert rest[-2:] == [
        f"[0, 3, 8, 8], {threads}",
        "by numpy's kernels: oneDNN has no primitives for these sizes",
    ]


def test_many_threads_call_with_many_shapes() -> None:
    region = network()
    function = region.module.get_function("f")
    inputs = [region.draw(number, 3, 8, 8) for number in range(2 * MAX_PROGRAMS)]
    expected = [region.run(x)[0] for x in inputs]

    def run(start: int) -> bool:
        order = [(start * 5 + step) % len(inputs) for step in range(3 * len(inputs))]
        outs = [(index, np.full_like(expected[index], np.nan)) for index in order]
        return all(function(inputs[i], out) is None and np.array_equal(out, expected[i]) for i, out in outs)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(8)))


def test_a_model_with_a_symbolic_batch_in_another_process(tmp_path: Path) -> None:
    region = network()
    executable = byoc_core.build(region.ir, backends=["dnnl"], fallback="error")
    assert [module.type_key for module in executable.modules] == ["dnnl"]
    executable.save(tmp_path / "model.byoc")
    inputs = [region.draw(number, 3, 9, 8) for number in (1, 4)]
    for index, x in enumerate(inputs):
        np.save(tmp_path / f"{index}.npy", x)
    script = """
import sys, numpy as np, byoc_core
main = byoc_core.VirtualMachine(byoc_core.load(sys.argv[1] + "/model.byoc"))["f"]
for index in (0, 1, 0):
    np.save(f"{sys.argv[1]}/result{index}.npy", main(np.load(f"{sys.argv[1]}/{index}.npy")))
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    for index, x in enumerate(inputs):
        found: NDArray = np.load(tmp_path / f"result{index}.npy")
        np.testing.assert_array_equal(found, region.run(x)[0])


def test_a_missing_library_is_said_where_the_artifact_is_loaded(tmp_path: Path) -> None:
    byoc_core.build(network().ir, backends=["dnnl"], fallback="error").save(tmp_path / "model.byoc")
    script = "import sys, byoc_core; byoc_core.load(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.byoc")],
        env={**os.environ, VARIABLE: str(tmp_path / "absent.so")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"PluginError: byoc-dnnl: {tmp_path / 'absent.so'} (by {VARIABLE}) cannot be loaded" in done.stderr
    assert f"Set {VARIABLE} to a libdnnl of version 3.2" in done.stderr


def test_the_size_of_a_symbol_is_found_by_any_linear_axis() -> None:
    region = Region()
    x = region.builder.param("x", tensor(("2*n+1", 8)))
    region.finish(emit(region, "nn.relu", x))
    check_sums(region, [region.draw(7, 8)], 1)
    with pytest.raises(CallError):
        region.module.get_function("f")(region.draw(6, 8), np.zeros((6, 8), np.float32))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_repeated_operand_beside_an_axis_of_one_element(steps: int) -> None:
    region = Region()
    x = region.builder.param("x", tensor(("n", "s", 6, 8)))
    y = region.builder.param("y", tensor((1, 1, "s", 8)))
    region.finish(emit(region, "multiply", emit(region, "permute_dims", x, axes=(0, 2, 1, 3)), y))
    for number in (1, 3):
        inputs = region.draw(number, steps, 6, 8), region.draw(1, 1, steps, 8)
        (found,), (exact,) = region.run(*inputs), region.oracle(*inputs)
        np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize("sizes", [(1, 3, 6, 2**33), (1, 3, 2**16, 2**16), (2**62, 3, 8, 8)])
def test_tensors_larger_than_onednn_counts_are_left_to_kernels(sizes: tuple[int, ...]) -> None:
    """Implementations divide by the low 32 bits of these sizes, perhaps 0, ending the process."""
    assert isinstance(built_of(network()).program(1, (sizes, (sizes[0], 5))), Reference)


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ((2**33,), "`nn.relu`: float32[8589934592] has more than 2147483647 elements"),
        ((2**62, 64), "`nn.relu`: float32[4611686018427387904, 64] has more than 2147483647 elements"),
        ((1,) * 13, "`nn.relu`: float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1] has more than 12 axes"),
    ],
)
def test_a_static_tensor_larger_than_onednn_counts_is_refused(sizes: tuple[int, ...], text: str) -> None:
    region = Region()
    region.finish(emit(region, "nn.relu", region.builder.param("x", tensor(sizes))))
    result = dnnl.byoc_codegen([region.function], CompileContext("dnnl", None, region.builder.constants))
    assert result.rejections["f"].text == text
