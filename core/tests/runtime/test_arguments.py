"""Calls of packed functions: conversion, checks, overlap."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import CallError
from byoc_core.runtime.arguments import as_input, as_output, bind_symbols, concrete_shape
from byoc_core.runtime.module import NDArray, PackedFunction, Signature
from hypothesis import given
from hypothesis import strategies as st

from core.tests.vm.programs import spec

pytestmark = pytest.mark.interpreter


def reverse_impl(x: NDArray, y: NDArray) -> None:
    for index in range(len(x)):
        y[index] = x[len(x) - 1 - index]


REVERSE = PackedFunction("reverse", reverse_impl, Signature((spec("x", "n"),), (spec("y", "n"),)))


def zeros(*shape: int, dtype: str = "float32") -> NDArray:
    return np.zeros(shape, dtype)


class Exporter:
    """An array of another framework: DLPack and nothing else."""

    def __init__(self, array: NDArray) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class EarlyExporter(Exporter):
    """An array of a framework without versions of DLPack: all exports are writable memory."""

    def __dlpack__(self, stream: object = None) -> Any:  # type: ignore[override]  # the signature before versions
        return self.array.__dlpack__()


class LateExporter(Exporter):
    """An array exported as read-only to consumers knowing the flag, and not at all to others."""

    def __dlpack__(self, **keywords: Any) -> Any:
        frozen = self.array.view()
        frozen.flags.writeable = False
        return frozen.__dlpack__(**keywords)


class Frozen(EarlyExporter):
    """An array of a framework whose own numpy view is read-only, though exports cannot say so."""

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        view = self.array.view()
        view.flags.writeable = False
        return view


class Faulty:
    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError("cannot be exported now")

    def __dlpack_device__(self) -> Any:
        return (1, 0)


TWO = PackedFunction(
    "f",
    lambda x, y, out: None,
    Signature((spec("x", "n", 4), spec("y", "n", dtype="int64")), (spec("out", "2*n", 4),)),
)

ERRORS: list[tuple[list[object], str]] = [
    ([zeros(2, 4)], "function `f`: wrong number of arguments; got 1, expected 3: 2 inputs and 1 outputs (x, y, out)"),
    (
        [zeros(2, 4, dtype="float64"), zeros(2, dtype="int64"), zeros(4, 4)],
        "function `f`, input 0 `x`: wrong dtype; got float64, expected float32",
    ),
    (
        [zeros(2, 4).astype(">f4"), zeros(2, dtype="int64"), zeros(4, 4)],
        "function `f`, input 0 `x`: wrong dtype; got >f4, expected float32",
    ),
    (
        [zeros(2, 4), zeros(2, 1, dtype="int64"), zeros(4, 4)],
        "function `f`, input 1 `y`: wrong rank; got 2, shape [2, 1], expected 1, shape [n]",
    ),
    (
        [zeros(2, 5), zeros(2, dtype="int64"), zeros(4, 4)],
        "function `f`, input 0 `x`: axis 1 has the wrong size; got [2, 5], expected [n, 4] with n = 2",
    ),
    (
        [zeros(2, 4), zeros(3, dtype="int64"), zeros(4, 4)],
        "function `f`, input 1 `y`: axis 0 has the wrong size; got [3], expected [n] with n = 2",
    ),
    (
        [zeros(2, 4), zeros(2, dtype="int64"), zeros(5, 4)],
        "function `f`, output 0 `out`: axis 0 has the wrong size; got [5, 4], expected [2*n, 4] with n = 2",
    ),
    (
        [[1.0], zeros(2, dtype="int64"), zeros(4, 4)],
        "function `f`, input 0 `x`: is not an array; got list, expected a numpy array or an object with __dlpack__",
    ),
    (
        [Faulty(), zeros(2, dtype="int64"), zeros(4, 4)],
        "function `f`, input 0 `x`: cannot be read through DLPack: cannot be exported now; got Faulty",
    ),
    (
        [zeros(2, 4), zeros(2, dtype="int64"), np.broadcast_to(np.float32(0), (4, 4))],
        "function `f`, output 0 `out`: is read-only. Pass a writable array.",
    ),
]


@pytest.mark.parametrize(("arguments", "text"), ERRORS)
def test_wrong_argument(arguments: list[object], text: str) -> None:
    with pytest.raises(CallError) as caught:
        TWO(*arguments)
    assert str(caught.value) == text


@pytest.mark.parametrize("exporter", [Exporter, EarlyExporter])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int64"])
def test_any_writable_tensor_of_dlpack_is_an_output(exporter: type[Exporter], dtype: str) -> None:
    base = zeros(3, 4, dtype=dtype)
    for array in (base, base.T, base[::2], base[:0], base[1]):
        found = as_output(exporter(array), spec("y", *array.shape, dtype=dtype), "output")
        found[...] = 1
        assert found.shape == array.shape
        assert (array == 1).all()


@pytest.mark.parametrize("exporter", [LateExporter, Frozen])
def test_read_only_tensors_are_no_outputs(exporter: type[Exporter]) -> None:
    array = zeros(3)
    with pytest.raises(CallError) as caught:
        as_output(exporter(array), spec("y", 3), "output")
    assert str(caught.value) == (
        "output: is read-only. The tensor's package exports read-only memory. Pass a writable tensor, or a writable "
        "numpy array."
    )


def test_functions_of_a_machine_and_sessions_fill_tensors_of_dlpack() -> None:
    module = byoc_core.parse("def main(x: R.Tensor((3,))):\n    y = R.negative(x)\n    return y")
    machine = byoc_core.VirtualMachine(byoc_core.build(module, []))
    x = np.array([1, 2, 3], np.float32)
    for exporter in (Exporter, EarlyExporter):
        target = zeros(3)
        machine.run("main", {"x": x}, out={"y": exporter(target)})
        assert target.tolist() == [-1, -2, -3]
        bound, tensor = zeros(3), exporter(x)
        machine.bind("main", {"x": tensor}, out={"y": exporter(bound)})()
        assert bound.tolist() == [-1, -2, -3]
        held = zeros(3)
        byoc_core.Session(module, backends=[]).run(None, {"x": x}, out={"y": exporter(held)})
        assert held.tolist() == [-1, -2, -3]


def test_the_memory_of_an_output_lives_as_long_as_the_output() -> None:
    tensor = EarlyExporter(zeros(1000))
    found = as_output(tensor, spec("y", 1000), "output")
    weak = weakref.ref(tensor.array)
    del tensor
    gc.collect()
    assert weak() is not None
    found[...] = 3
    del found
    gc.collect()
    assert weak() is None


def test_scalar_output_is_refused() -> None:
    with pytest.raises(CallError, match="a numpy scalar cannot be written"):
        as_output(np.float32(1), spec("y"), "output")


def test_output_whose_elements_share_memory_is_refused() -> None:
    for strides in ((0, 4), (4, 4), (4, 8)):
        array = np.lib.stride_tricks.as_strided(zeros(16), (3, 4), strides)
        with pytest.raises(CallError, match="several elements share the same memory"):
            as_output(array, spec("y", 3, 4), "output")


def test_output_may_be_any_view_of_its_own_memory() -> None:
    whole = zeros(4, 4, 4)
    views = (whole[::2, ::-1], whole.T, whole.transpose(1, 2, 0)[:, 1:3], whole[:, :1, :, None])
    diagonals = [np.lib.stride_tricks.as_strided(whole, (4, 4), strides) for strides in ((80, 4), (64, 20))]
    for view in (*views, *diagonals):
        assert as_output(view, spec("y", *view.shape), "output") is view


def test_empty_output() -> None:
    assert as_output(np.empty((0, 3), "float32"), spec("y", "n", 3), "output").shape == (0, 3)
    empty = zeros(0)
    PackedFunction("f", lambda a, b: None, Signature((), (spec("a", 0), spec("b", 0))))(empty, empty)


def test_two_overlapping_outputs_are_refused() -> None:
    function = PackedFunction("f", lambda a, b: None, Signature((), (spec("a", 3), spec("b", 3))))
    memory = zeros(5)
    with pytest.raises(CallError) as caught:
        function(memory[:3], memory[2:])
    assert str(caught.value) == "function `f`, output 1 `b`: overlaps another output; got output 0 `a`"


def test_interleaved_outputs_do_not_overlap() -> None:
    def fill(a: NDArray, b: NDArray) -> None:
        a[:], b[:] = 1, 2

    memory = zeros(6)
    PackedFunction("f", fill, Signature((), (spec("a", 3), spec("b", 3))))(memory[::2], memory[1::2])
    assert memory.tolist() == [1, 2, 1, 2, 1, 2]


def test_right_array_is_passed_as_it_is() -> None:
    array = zeros(3)
    assert as_input(array, spec("x", "n"), "x") is array
    read_only = zeros(3)
    read_only.flags.writeable = False
    assert as_input(read_only, spec("x", "n"), "x") is read_only


def test_array_of_no_axes_keeps_its_rank() -> None:
    assert as_input(np.float32(3), spec("x"), "x").shape == ()
    assert as_input(np.array(3, "float32"), spec("x"), "x").shape == ()


def test_unaligned_input_is_copied() -> None:
    array = np.frombuffer(bytes(13), dtype="float32", count=3, offset=1)
    assert as_input(array, spec("x", 3), "x").flags.aligned


def test_dlpack_is_not_copied() -> None:
    source = np.arange(4, dtype="float32")
    target = zeros(4)
    assert np.shares_memory(as_input(Exporter(source), spec("x", 4), "x"), source)
    REVERSE(Exporter(source), Exporter(target))
    assert target.tolist() == [3, 2, 1, 0]


def test_memory_mapped_subclass_is_viewed() -> None:
    class Sub(np.ndarray[Any, Any]):
        pass

    array = zeros(3).view(Sub)
    assert type(as_input(array, spec("x", 3), "x")) is np.ndarray


def test_symbol_that_only_later_dims_determine() -> None:
    specs = [spec("x", "n*m"), spec("y", "n//2"), spec("z", "n"), spec("w", "m")]
    assert bind_symbols(specs, [zeros(6), zeros(1), zeros(2), zeros(3)]) == {"n": 2, "m": 3}
    with pytest.raises(CallError) as caught:
        bind_symbols(specs, [zeros(7), zeros(1), zeros(2), zeros(3)])
    assert str(caught.value) == (
        "arguments, argument 0 `x`: axis 0 has the wrong size; got [7], expected [m*n] with m = 3, n = 2"
    )


def test_undetermined_symbol_stays_open() -> None:
    assert bind_symbols([spec("x", "n//2")], [zeros(3)]) == {}


def test_size_that_no_symbol_gives_is_refused() -> None:
    with pytest.raises(CallError, match=r"got \[5\], expected \[2\*n\]"):
        bind_symbols([spec("x", "2*n")], [zeros(5)])


def test_broadcast_of_sizes_that_do_not_fit() -> None:
    specs = [spec("a", "n"), spec("b", "m"), spec("c", "broadcast(n, m)")]
    assert bind_symbols(specs, [zeros(1), zeros(3), zeros(3)]) == {"n": 1, "m": 3}
    with pytest.raises(CallError, match="axis 0 has the wrong size"):
        bind_symbols(specs, [zeros(2), zeros(3), zeros(3)])
    with pytest.raises(CallError, match=r"size broadcast\(m, n\) cannot be computed"):
        concrete_shape(specs[2], {"n": 2, "m": 3}, "f")


def test_concrete_shape() -> None:
    assert concrete_shape(spec("x", "2*n", 3, "n-1"), {"n": 4}, "x") == (8, 3, 3)
    with pytest.raises(CallError) as caught:
        concrete_shape(spec("x", "n*m"), {"n": 4}, "output 0 `x`")
    assert str(caught.value) == "output 0 `x`: size m*n is not determined by the inputs: m is unknown"
    with pytest.raises(CallError, match="size n-5 is negative; got -1"):
        concrete_shape(spec("x", "n-5"), {"n": 4}, "x")


def test_without_signature_nothing_is_checked() -> None:
    seen: list[object] = []
    PackedFunction("f", lambda *a: seen.extend(a))(1, "two")
    assert seen == [1, "two"]


slices = st.tuples(st.integers(0, 12), st.sampled_from([1, 2, 3, -1, -2]))


@given(slices, slices, st.integers(0, 4))
def test_any_overlap_gives_the_result_of_separate_arrays(
    source: tuple[int, int], target: tuple[int, int], length: int
) -> None:
    memory = np.arange(40, dtype="float32")

    def cut(start: int, step: int) -> NDArray:
        return memory[12:][start : start + step * length : step] if step > 0 else memory[12 + start :: step][:length]

    x, y = cut(*source), cut(*target)
    if len(x) != length or len(y) != length:
        return
    expected = memory.copy()
    inside = np.zeros(40, bool)
    inside_view = inside[12:][target[0] : target[0] + target[1] * length : target[1]]
    if target[1] < 0:
        inside_view = inside[12 + target[0] :: target[1]][:length]
    inside_view[:] = True
    reversed_x = x[::-1].copy()
    REVERSE(x, y)
    assert np.array_equal(y, reversed_x)
    assert np.array_equal(memory[~inside], expected[~inside])


@given(st.permutations(range(3)), st.permutations(range(3)), st.booleans())
def test_any_layout_gives_the_result_of_contiguous_arrays(x_axes: list[int], y_axes: list[int], flip: bool) -> None:
    def double(x: NDArray, y: NDArray) -> None:
        assert x.flags.c_contiguous
        assert y.flags.c_contiguous
        np.multiply(x, 2, out=y)

    def layout(axes: list[int]) -> NDArray:
        base = np.arange(24, dtype="float32").reshape([(2, 3, 4)[a] for a in axes])
        array = base.transpose(np.argsort(axes))
        return array[:, ::-1] if flip else array

    x, y = layout(x_axes), layout(y_axes)
    expected = x * 2
    function = PackedFunction("f", double, Signature((spec("x", "a", "b", "c"),), (spec("y", "a", "b", "c"),)))
    function(x, y)
    assert np.array_equal(y, expected)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3), st.integers(0, 3))
def test_symbols_are_bound_as_the_shapes_say(n: int, m: int, factor: int, offset: int) -> None:
    specs = [spec("x", f"{factor}*n+{offset}"), spec("y", "n+m", "m"), spec("z", "n*m")]
    arrays = [zeros(factor * n + offset), zeros(n + m, m), zeros(n * m)]
    assert bind_symbols(specs, arrays) == {"n": n, "m": m}
