"""Expressions as C text: precedence, casts, literals."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from byoc_core.authoring.c import (
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    CType,
    Expression,
    Function,
    Lane,
    Let,
    Literal,
    Load,
    MemoryAccess,
    Select,
    Size,
    Store,
    Unary,
    Variable,
    print_definitions,
    print_function,
    verify,
)
from byoc_core.dims import symbol
from byoc_core.native.toolchain import find_toolchain, include_directory

FLOAT, INT = CType("float32"), CType("int32")
A, B, C = (Variable(name, FLOAT) for name in "abc")
K, L = Variable("k"), Variable("l")
P, Q = Variable("p", BOOL), Variable("q", BOOL)
W = Variable("w", INT)
X = Buffer("x", "float32")
ROW = Load(X, Size(0), 4)
PARAMETERS = (A, B, C, K, L, P, Q, W, X)

TEXTS: list[tuple[Expression, str]] = [
    (A + (B + C), "a + (b + c)"),
    (A + B + C, "a + b + c"),
    (A - (B - C), "a - (b - c)"),
    ((A + B) * C, "(a + b) * c"),
    (A * B + C, "a * b + c"),
    (A / (B * C), "a / (b * c)"),
    (Unary("-", Unary("-", A)), "-(-a)"),
    (Unary("-", A + B), "-(a + b)"),
    (Unary("-", Literal(-1, FLOAT)), "-(-1.0f)"),
    (A * Literal(-1, FLOAT), "a * (-1.0f)"),
    (K % 4 * 2, "k % 4 * 2"),
    (K // (L + 1), "k / (l + 1)"),
    (K * Size(symbol("n") + 1), "k * (dim_n + 1)"),
    (K + Size(-1), "k + (-1)"),
    (A.compare("<", B), "a < b"),
    (Binary("==", A.compare("<", B), P), "(a < b) == p"),
    (Binary("==", Unary("!", P), Q), "(!p) == q"),
    (Unary("!", A.compare("<", B)), "!(a < b)"),
    (Binary("&&", A.compare("<", B), P), "a < b && p"),
    (Binary("||", Binary("&&", P, Q), P), "(p && q) || p"),
    (Binary("&&", Binary("||", P, Q), P), "(p || q) && p"),
    (Binary("&", Binary("+", W, W), W), "(w + w) & w"),
    (Binary("<<", W, Binary("+", W, W)), "w << (w + w)"),
    (Binary("|", Binary("&", W, W), W), "(w & w) | w"),
    (Binary("-", W, Binary("<<", W, W)), "w - (w << w)"),
    (Select(P, A, B), "p ? a : b"),
    (Select(P, Select(Q, A, B), C), "p ? (q ? a : b) : c"),
    (Select(P, A, B) + C, "(p ? a : b) + c"),
    (Cast(K, FLOAT), "(float)k"),
    (Cast(K + L, FLOAT) / A, "(float)(k + l) / a"),
    (Cast(A, BOOL), "a != 0"),
    (Binary("==", Cast(A, BOOL), P), "(a != 0) == p"),
    (Cast(P, FLOAT), "(float)p"),
    (X[Select(P, K, L)], "x[p ? k : l]"),
    (Lane(ROW + ROW, K), "(*(const vec_f32x4u *)x + *(const vec_f32x4u *)x)[k]"),
    (Lane(Cast(ROW, CType("int32", 4)), Size(1)), "__builtin_convertvector(*(const vec_f32x4u *)x, vec_i32x4)[1]"),
    (Lane(ROW * Broadcast(A, 4), Size(0)), "(*(const vec_f32x4u *)x * a)[0]"),
    (Lane(Broadcast(A, 4), Size(0)), "(a - (vec_f32x4){0})[0]"),
    (Lane(ROW + 2, Size(0)), "(*(const vec_f32x4u *)x + (vec_f32x4){2.0f, 2.0f, 2.0f, 2.0f})[0]"),
]


@pytest.mark.parametrize(("expression", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_an_expression_has_the_parentheses_that_it_needs(expression: Expression, text: str) -> None:
    function = verify(Function("f", PARAMETERS, (Let(Variable("value", expression.type), expression),)))
    (line,) = (line for line in print_function(function).splitlines() if "value" in line)
    assert line.split(" = ", 1)[1] == f"{text};"


def test_a_compiler_has_nothing_to_say_of_them(tmp_path: Path) -> None:
    outs = {dtype: Buffer(f"out_{dtype}", dtype, MemoryAccess.WRITE) for dtype in ("float32", "int32", "int64", "bool")}
    body = tuple(Store(outs[item.type.dtype], Size(place), item) for place, (item, _) in enumerate(TEXTS))
    function = verify(Function("f", (*PARAMETERS, *outs.values()), body))
    text = '#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n' + print_definitions([function]).replace(
        "static void", "void"
    )
    source = tmp_path / "texts.c"
    source.write_text(f'#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n{text}', encoding="utf-8")
    flags = ["-Wall", "-Wextra", "-Werror", "-Wparentheses", "-c", f"-I{include_directory()}"]
    command = [*find_toolchain().command, *flags, str(source), "-o", str(tmp_path / "texts.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
