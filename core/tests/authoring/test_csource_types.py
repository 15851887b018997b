"""dtypes, sizes and names in C; expressions are compiled and compared with Python's own arithmetic."""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path

import numpy as np
from byoc_core.authoring.csource_loops import LoopNest, align, offset_expression
from byoc_core.authoring.csource_scalars import scalar_expression, without_parentheses
from byoc_core.authoring.csource_types import (
    C_TYPES,
    NameTable,
    c_dim,
    c_identifier,
    c_literal,
    c_suffix,
    c_symbol,
)
from byoc_core.dims import Dim, DimExpr, broadcast_pairs, evaluate, parse_dim
from byoc_core.dtypes import is_float, to_numpy
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from hypothesis import example, given
from hypothesis import strategies as st


def _load(source: str, folder: Path) -> ctypes.CDLL:
    text = f'#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n{source}'
    options = BuildOptions(0, "generic", ("-Wall", "-Wextra", "-Werror"))
    path = folder / "library.so"
    path.write_bytes(find_toolchain().compile(text, options).data)
    return ctypes.CDLL(str(path))


DIMS = [
    "n",
    "7",
    "2*n+1",
    "n*m",
    "n//4",
    "(n-7)//3",
    "(n-7)%5",
    "max(n, m)",
    "min(n, 2*m)",
    "broadcast(n, m)",
    "n*n-3*m",
    "-n",
]


def test_sizes_mean_in_c_what_they_mean_in_python(tmp_path: Path) -> None:
    dims = [parse_dim(text) for text in DIMS]
    body = " ".join(f"out[{k}] = {c_dim(dim)};" for k, dim in enumerate(dims))
    library = _load(f"BYOC_EXPORT void f(int64_t dim_n, int64_t dim_m, int64_t *out) {{ {body} }}", tmp_path)
    out = (ctypes.c_int64 * len(dims))()
    for n, m in ((0, 1), (1, 5), (6, 6), (13, 1)):
        library.f(ctypes.c_int64(n), ctypes.c_int64(m), out)
        assert list(out) == [evaluate(dim, {"n": n, "m": m}) for dim in dims]


VALUES = [0, 1, -1, 100, 0.1, -2.5, 1e30, 1e-40, math.inf, -math.inf, math.nan, -0.0]


def test_literals_are_exact(tmp_path: Path) -> None:
    cases = []
    for dtype in C_TYPES:
        if is_float(dtype):
            cases += [(dtype, value) for value in VALUES]
        elif dtype == "bool":
            cases += [(dtype, False), (dtype, True)]
        else:
            limits = np.iinfo(dtype)
            cases += [(dtype, value) for value in (limits.min, limits.max, 5)]
    lines = [
        f"BYOC_EXPORT const {C_TYPES[dtype]} v{k} = {c_literal(value, dtype)};"
        for k, (dtype, value) in enumerate(cases)
    ]
    library = _load("\n".join(lines), tmp_path)
    for k, (dtype, value) in enumerate(cases):
        with np.errstate(over="ignore"):
            expected = np.array(value).astype(to_numpy(dtype))
        memory = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, f"v{k}")), expected.nbytes)
        actual = np.frombuffer(memory, to_numpy(dtype))[0]
        is_nan = is_float(dtype) and math.isnan(value)
        assert (np.isnan(actual) and np.isnan(expected)) if is_nan else actual.tobytes() == expected.tobytes()


def test_names() -> None:
    assert [c_identifier(name) for name in ("x", "a b", "9x", "int", "é", "")] == ["x", "a_b", "_9x", "_int", "_", "_"]
    assert [c_suffix(dtype) for dtype in ("float32", "int8", "bfloat16")] == ["f32", "i8", "bf16"]
    table = NameTable()
    table.reserve(["x"])
    table.forbid_prefixes("byoc_")
    assert [table.unique(name) for name in ("x", "x", "y", "byoc_z")] == ["x_1", "x_2", "y", "v_byoc_z"]


SYMBOL_NAMES = st.text("a_9e\u00e9\u00e8", max_size=8).filter(str.isidentifier)


@given(SYMBOL_NAMES, SYMBOL_NAMES)
@example("int", "_int")
@example("a__b", "a_b")
@example("_e9_", "\u00e9")
@example("\u00e9_e8_", "\u00e9\u00e8")
def test_different_sizes_have_different_names(first: str, second: str) -> None:
    names = [c_symbol(first), c_symbol(second)]
    assert all(re.fullmatch(r"dim_\w+", name, re.ASCII) and c_identifier(name) == name for name in names)
    assert (names[0] == names[1]) == (first == second)


def test_common_sizes_keep_their_names() -> None:
    assert list(map(c_symbol, ["n", "past_length", "int", "N2"])) == ["dim_n", "dim_past_length", "dim_int", "dim_N2"]


def test_parentheses_are_taken_off_only_where_they_enclose_all() -> None:
    assert [without_parentheses(text) for text in ("(a + b)", "(a) + (b)", "f(a)", "((a))")] == [
        "a + b",
        "(a) + (b)",
        "f(a)",
        "(a)",
    ]


def test_an_op_without_a_c_form_has_no_expression() -> None:
    assert scalar_expression("take", ["a"], ["float32"], "float32", {}) is None
    assert scalar_expression("add", ["a", "b"], ["float16", "float16"], "float16", {}) is None
    assert scalar_expression("subtract", ["a", "b"], ["bool", "bool"], "bool", {}) is None
    assert scalar_expression("add", ["a", "b"], ["float32", "float32"], "float32", {}) == "(a + b)"


def test_pairs_that_must_broadcast() -> None:
    dim = parse_dim("2*broadcast(n, m)+1")
    assert [(str(left), str(right)) for left, right in broadcast_pairs(dim)] == [("m", "n")]
    assert broadcast_pairs(3) == []


def _nest(space: tuple[Dim, ...], *tensors: tuple[Dim, ...]) -> tuple[tuple[str, ...], list[str]]:
    nest = LoopNest(space, {str(k): align(shape, len(space)) for k, shape in enumerate(tensors)})
    return tuple(str(size) for size in nest.sizes), [nest.offset(str(k)) for k in range(len(tensors))]


def test_loops_are_as_few_as_the_shapes_permit() -> None:
    n = parse_dim("n")
    assert isinstance(n, DimExpr)
    assert _nest((2, 3, 4), (2, 3, 4), (2, 3, 4)) == (("24",), ["i", "i"])
    assert _nest((2, 3, 4), (2, 3, 4), ()) == (("24",), ["i", "0"])
    assert _nest((2, 3, 4), (2, 3, 4), (4,)) == (("6", "4"), ["i0 * 4 + i1", "i1"])
    assert _nest((2, 3, 4), (2, 3, 4), (3, 1)) == (("2", "3", "4"), ["i0 * 12 + i1 * 4 + i2", "i1"])
    assert _nest((1, 5, 1), (1, 5, 1)) == (("5",), ["i"])
    assert _nest((), ()) == ((), ["0"])
    assert _nest((n, 3), (n, 3), (n, 3)) == (("3*n",), ["i", "i"])


def test_a_symbolic_size_may_turn_out_to_broadcast() -> None:
    n, m = parse_dim("n"), parse_dim("m")
    assert offset_expression((n, 3), (m, 3), ("i", "j")) == "(dim_n == 1 ? 0 : i * 3) + j"
