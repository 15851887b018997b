"""Symbolic sizes in exported C: statuses, largest sizes, called functions, and bounds of expressions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.artifact.plain_c.plain_model import plain_model
from byoc_core.dims import Dim, broadcast_dim, dim_max, dim_min, evaluate, parse_dim, symbol, upper_bound
from byoc_core.errors import ByocError, IRTypeError, OptionsError
from byoc_core.native.c_text import c_dim
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray, Signature, TensorSpec
from byoc_core.vm import Builtin, Call, CallKind, PlannedTensor, Ret, VirtualMachine, VMFunction
from byoc_core.vm.program import View
from hypothesis import given
from hypothesis import strategies as st

from core.tests.artifact.exported_model import (
    BAD_ARGUMENT,
    BAD_SIZE,
    FAILED,
    OK,
    ExportedModel,
    builtin,
    c_module,
    copies,
    executable_of,
    extern,
    shift,
    tensor,
)

needs_compiler = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

N, M = symbol("n"), symbol("m")
SYMBOLS = ("k", "m", "n")


def two_steps(name: str = "main", nbytes: str = "4*n") -> VMFunction:
    """Return y = x + 2 by an intermediate."""
    return VMFunction(
        name,
        (tensor("x", "n"),),
        (tensor("y", "n"),),
        (),
        (parse_dim(nbytes),),
        (PlannedTensor(0, 0, "float32", (N,)),),
        (),
        (extern(0, (0,), (2,)), extern(0, (2,), (1,)), Ret((1,))),
    )


def floats(count: int) -> NDArray:
    return np.arange(count, dtype="float32")


@needs_compiler
def test_sizes_above_the_maximum_and_negative_sizes_are_bad(tmp_path: Path) -> None:
    model = ExportedModel(executable_of((two_steps(),), [shift("one", 1)]), tmp_path, max_sizes={"n": 9})
    for size, status in ((0, OK), (9, OK), (10, BAD_SIZE), (2**62, BAD_SIZE), (-1, BAD_SIZE), (-(2**63), BAD_SIZE)):
        inputs, outputs = [floats(16)], [np.zeros(16, "float32")]
        assert model.call(inputs, {"n": size}, outputs=outputs)[0] == status
        assert model.workspace_size({"n": size}) == (64 if status == OK else -1)
    assert "#define MODEL_MAX_N 9\n" in model.header
    assert "#define MODEL_WORKSPACE_SIZE 64\n" in model.header


@needs_compiler
def test_sizes_without_a_maximum_end_where_64_bits_end(tmp_path: Path) -> None:
    model = ExportedModel(executable_of((two_steps(),), [shift("one", 1)]), tmp_path)
    for size in (0, 1, 16, 17, 2**40):
        assert model.workspace_size({"n": size}) == max(1, -(-4 * size // 64) * 64)
    for size in (2**61, 2**62, 2**63 - 1, -1, -(2**63)):
        assert model.workspace_size({"n": size}) == -1
        assert model.call([floats(1)], {"n": size}, outputs=[floats(1)])[0] == BAD_SIZE
    assert "WORKSPACE_SIZE" not in model.header


@needs_compiler
def test_products_of_sizes_beyond_64_bits_are_bad(tmp_path: Path) -> None:
    params, results = [tensor("x", "m", "n", dtype="float64")], [tensor("y", "m", "n", dtype="float64")]
    model = ExportedModel(executable_of((copies("main", params, results),)), tmp_path)
    for m, n in ((2**31, 2**31), (2**62, 2**62), (2**40, 2**40), (2**63 - 1, 1)):
        assert model.workspace_size({"m": m, "n": n}) == -1
    assert model.workspace_size({"m": 2**30, "n": 2**28}) == 1


@needs_compiler
def test_pointers_are_checked(tmp_path: Path) -> None:
    model = ExportedModel(executable_of((two_steps(),), [shift("one", 1)]), tmp_path)
    x, sizes = floats(4), {"n": 4}
    assert model.call([x], sizes)[0] == OK
    assert model.call([None], sizes)[0] == BAD_ARGUMENT
    assert model.call([x], sizes, outputs=[None])[0] == BAD_ARGUMENT
    for offset in (1, 4, 8, 32):
        assert model.call([x], sizes, offset=offset)[0] == BAD_ARGUMENT
    assert model.call([x], sizes, offset=64)[0] == OK


def adding(shape: Dim) -> VMFunction:
    """Return a function of x (n) and y (m) with a result of another shape."""
    spec = TensorSpec("z", "float32", (shape,))
    return VMFunction(
        "main", (tensor("x", "n"), tensor("y", "m")), (spec,), (), (), (), (), (extern(0, (0, 1), (2,)), Ret((2,)))
    )


def filling(shape: Dim) -> CSourceModule:
    """Return a module writing all elements of z, for any sizes."""
    raw = f"""\
BYOC_EXPORT int32_t fill_(const float *x, const float *y, float *z, int64_t dim_m, int64_t dim_n) {{
  (void)x, (void)y;
  for (int64_t i = 0; i < {c_dim(shape)}; ++i) z[i] = 1.0f;
  return 0;
}}"""
    specs = (tensor("x", "n"), tensor("y", "m"))
    return c_module("fill", raw, Signature(specs, (TensorSpec("z", "float32", (shape,)),)))


@needs_compiler
@pytest.mark.parametrize(
    ("shape", "good", "bad"),
    [
        ("broadcast(m, n)", [(3, 3), (1, 5), (5, 1), (1, 0), (0, 0)], [(3, 4), (0, 2), (-1, 1)]),
        ("n-m", [(2, 5), (5, 5)], [(5, 2), (1, 0)]),
        ("n//m", [(2, 5), (7, 5)], [(0, 5), (0, 0)]),
    ],
)
def test_sizes_without_a_meaning_are_bad(
    tmp_path: Path, shape: str, good: list[tuple[int, int]], bad: list[tuple[int, int]]
) -> None:
    dim = parse_dim(shape)
    model = ExportedModel(executable_of((adding(dim),), [filling(dim)]), tmp_path)
    bounded = ExportedModel(
        executable_of((adding(dim),), [filling(dim)]), tmp_path, name="bounded", max_sizes={"m": 8, "n": 8}
    )
    for m, n in (*good, *bad):
        inputs, outputs = [floats(8), floats(8)], [floats(8)]
        for one in (model, bounded):
            status = one.call(inputs, {"m": m, "n": n}, outputs=outputs)[0]
            assert status == (OK if (m, n) in good else BAD_SIZE)
            assert (one.workspace_size({"m": m, "n": n}) > 0) == ((m, n) in good)


def shortening() -> tuple[VMFunction, VMFunction]:
    """Return a function of n + 5 elements without the last five, and a caller passing the function m elements."""
    tail = VMFunction(
        "tail",
        (tensor("x", "k"),),
        (TensorSpec("y", "float32", (symbol("k") - 5,)),),
        (),
        (),
        (),
        (),
        (builtin(Builtin.COPY, (2,), 1), Ret((1,))),
        (View(0, 0, "float32", (symbol("k") - 5,)),),
    )
    main = VMFunction(
        "main",
        (tensor("x", "n"), tensor("flag", dtype="bool")),
        (TensorSpec("y", "float32", (dim_max(0, N - 5),)),),
        (),
        (),
        (),
        (),
        (Call(CallKind.FUNCTION, 0, (0,), (2,)), Ret((2,))),
    )
    return tail, main


@needs_compiler
def test_sizes_of_called_functions_are_checked(tmp_path: Path) -> None:
    executable = executable_of(shortening())
    model, machine = ExportedModel(executable, tmp_path), VirtualMachine(executable)
    for size in (5, 6, 9):
        status, (y,) = model.call([floats(size), np.array(True)], {"n": size})
        assert status == OK
        assert np.array_equal(y, machine["main"](floats(size), np.array(True)))
    for size in (0, 4):
        with pytest.raises(ByocError):
            machine["main"](floats(size), np.array(True))
        assert model.call([floats(size), np.array(True)], {"n": size})[0] == FAILED
        assert model.call([floats(size)], {"k": size}, "tail")[0] == BAD_SIZE


@needs_compiler
def test_called_functions_have_memory_of_their_own(tmp_path: Path) -> None:
    inner = two_steps("inner")
    main = VMFunction(
        "main",
        (TensorSpec("x", "float32", (2 * M,)),),
        (TensorSpec("y", "float32", (2 * M,)),),
        (),
        (8 * M,),
        (PlannedTensor(0, 0, "float32", (2 * M,)),),
        (),
        (Call(CallKind.FUNCTION, 0, (0,), (2,)), Call(CallKind.FUNCTION, 0, (2,), (1,)), Ret((1,))),
    )
    executable = executable_of((inner, main), [shift("one", 1)])
    model = ExportedModel(executable, tmp_path)
    for size in (0, 1, 8, 33):
        status, (y,) = model.call([floats(2 * size)], {"m": size})
        assert (status, y.tolist()) == (OK, (floats(2 * size) + 4).tolist())
    with pytest.raises(
        OptionsError, match="too small for `n` of function `inner`, called by `main`; got 9, expected 10"
    ):
        plain_model(executable, "model", {"n": 9, "m": 5})
    bounded = ExportedModel(executable, tmp_path, max_sizes={"n": 10, "m": 5})
    assert bounded.call([floats(10)], {"m": 5})[0] == OK
    assert bounded.call([floats(12)], {"m": 6}, outputs=[floats(12)])[0] == BAD_SIZE


@pytest.mark.parametrize(
    ("max_sizes", "text"),
    [
        ({"n": 0}, "option `max_sizes`: impossible maximum of `n`; got 0, expected 1 or more"),
        ({"n": -3}, "option `max_sizes`: impossible maximum of `n`; got -3, expected 1 or more"),
        ({"n": 8.0}, "option `max_sizes`: impossible maximum of `n`; got 8.0, expected 1 or more"),
        ({"q": 3}, "option `max_sizes`: unknown size `q`; expected m, n"),
        ({"n": 3}, "option `max_sizes`: no maximum for m. Give all, or none."),
        (
            {"n": 2**40, "m": 2**40},
            "option `max_sizes`: gives a buffer beyond any memory; got 4,835,703,278,458,516,698,824,704 bytes",
        ),
    ],
)
def test_impossible_largest_sizes_are_refused(max_sizes: Mapping[str, Any], text: str) -> None:
    size = 4 * M * N
    main = VMFunction(
        "main",
        (tensor("x", "n"), tensor("w", "m")),
        (tensor("y", "n"),),
        (),
        (size,),
        (PlannedTensor(0, 0, "float32", (M, N)),),
        (),
        (extern(0, (0,), (3,)), extern(1, (3,), (2,)), Ret((2,))),
    )
    spec, square = tensor("x", "n"), tensor("t", "m", "n")
    modules = [
        c_module("up", "/* spread */\nBYOC_EXPORT int32_t up_(void);", Signature((spec,), (square,))),
        c_module("down", "BYOC_EXPORT int32_t down_(void);", Signature((square,), (spec,))),
    ]
    with pytest.raises(OptionsError) as caught:
        plain_model(executable_of((main,), modules), "model", max_sizes)
    assert str(caught.value) == text


def test_no_largest_sizes_are_none() -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    assert plain_model(executable, "model", {}).files == plain_model(executable, "model").files


def dims() -> st.SearchStrategy[Dim]:
    """Draw expressions over all functions of sizes."""

    def combine(children: st.SearchStrategy[Dim]) -> st.SearchStrategy[Dim]:
        pairs = st.tuples(children, children)
        return st.one_of(
            pairs.map(lambda pair: pair[0] + pair[1]),
            pairs.map(lambda pair: pair[0] - pair[1]),
            pairs.map(lambda pair: pair[0] * pair[1]),
            pairs.filter(lambda pair: pair[1] != 0).map(lambda pair: pair[0] // pair[1]),
            pairs.filter(lambda pair: pair[1] != 0).map(lambda pair: pair[0] % pair[1]),
            pairs.map(lambda pair: dim_max(*pair)),
            pairs.map(lambda pair: dim_min(*pair)),
            pairs.map(_broadcast),
        )

    return st.recursive(st.one_of(st.integers(-3, 9), st.sampled_from(SYMBOLS).map(symbol)), combine, max_leaves=6)


def _broadcast(pair: tuple[Dim, Dim]) -> Dim:
    try:
        return broadcast_dim(*pair)
    except IRTypeError:
        return pair[0]


@given(dims(), st.fixed_dictionaries({name: st.integers(0, 6) for name in SYMBOLS}), st.data())
def test_no_size_exceeds_the_bound(dim: Dim, largest: dict[str, int], data: st.DataObject) -> None:
    bound = upper_bound(dim, largest)
    for _ in range(20):
        sizes = {name: data.draw(st.integers(0, size)) for name, size in largest.items()}
        try:
            value = evaluate(dim, sizes)
        except IRTypeError:
            continue  # no such sizes: a zero divisor, or a broadcast of unequal sizes
        assert value <= bound


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("4*n*m+64", 4 * 6 * 5 + 64),
        ("max(n, m)", 6),
        ("min(n, m)", 5),
        ("n-m", 6),
        ("-((-n)//m)", 6),
        ("n-min(n, m-3)", 9),
        ("(n+3)//4*4", 8),
        ("n%4", 3),
    ],
)
def test_bounds_of_usual_sizes_are_near(text: str, bound: int) -> None:
    assert upper_bound(parse_dim(text), {"n": 6, "m": 5}) == bound
