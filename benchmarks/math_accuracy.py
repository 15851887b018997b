"""The largest errors of the functions in generated C: of float32 over all inputs, of float64 over random ones.

Every function is compiled as the toolchain compiles, with and without fused multiply-add, and compared with the C
library's in the next longer type. Errors are in units in the last place (ULP) of the result, or of the operand where
that is larger and the op's formula is a product with it; below the normal range the unit is the smallest number.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from byoc_core.native.cpu import check_target
from byoc_core.native.toolchain import BuildOptions, find_toolchain

MARCHES = ("generic", "x86-64-v3")
SAMPLES = 10_000_000
CHUNKS = 64


class Function(NamedTuple):
    """What a function of the headers computes.

    Attributes:
        reference: the same in C, in `real`, over `x`; functions of the C library are called `R(name)`.
        call: how it is called, where it takes more than one argument.
        by_operand: whether the operand's ULP counts where it is larger than the result's.
    """

    reference: str
    call: str = "(x)"
    by_operand: bool = False


_SOFTPLUS = "(x > 0 ? x : 0) + R(log1p)(R(exp)(-R(fabs)(x)))"
FUNCTIONS = {
    "exp": Function("R(exp)(x)"),
    "expm1": Function("R(expm1)(x)"),
    "log": Function("R(log)(x)"),
    "tanh": Function("R(tanh)(x)"),
    "erf": Function("R(erf)(x)"),
    "sigmoid": Function("1 / (1 + R(exp)(-x))"),
    "softplus": Function(_SOFTPLUS),
    "gelu": Function("x == -INFINITY ? 0 : x * (R(erfc)(x / -R(sqrt)(2)) / 2)", by_operand=True),
    "gelu_tanh": Function(
        "x < -1e5 ? 0 : x / (1 + R(exp)(-2 * R(sqrt)(2 / R(acos)(-1)) * (x + (real)0.044715L * x * x * x)))",
        by_operand=True,
    ),
    "swish": Function("x == -INFINITY ? 0 : x / (1 + R(exp)(-x))", "(x, 1)", by_operand=True),
    "mish": Function(f"x == -INFINITY ? 0 : x * R(tanh)({_SOFTPLUS})", by_operand=True),
}

_PREAMBLE = """
#include "byoc_ffi.h"
#include "byoc_scalar.h"
#include <float.h>

static inline uint64_t random_bits(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  return *state ^= *state << 17;
}
/* All bit patterns, and numbers of the magnitudes at which functions bend. */
static inline double random_f64(uint64_t *state) {
  const double scales[] = {4, 40, 800};
  const uint64_t bits = random_bits(state), kind = bits & 3;
  return kind == 3 ? byoc_from_bits_f64(bits) : ((double)(int64_t)bits * 0x1p-63) * scales[kind];
}
struct worst { double error, at; int64_t wrong; };
"""

_SWEEP = """
{define}
BYOC_EXPORT void sweep_{name}_{suffix}(uint64_t first, uint64_t end, uint64_t step, struct worst *worst) {{
  uint64_t state = first * 2 + 88172645463325252u;
  (void)state;
  for (uint64_t k = first; k < end; k += step) {{
    const {type} operand = {operand};
    const real x = operand, expected = {reference};
    const {type} rounded = ({type})expected;
    const {type} actual = byoc_{name}_{suffix}{call};
    if (!isfinite(rounded) || !isfinite(actual)) {{
      const int same = rounded == actual || (rounded != rounded && actual != actual);
      const real ratio = expected / {largest}, limit = 2 * {epsilon};
      const int edge = R(fabs)(R(fabs)(ratio) - 1) < limit && R(fabs)(actual) > {largest} * (1 - limit);
      if (!same && !edge && !worst->wrong++) worst->at = (double)operand;
      continue;
    }}
    const real size = {by_operand} && R(fabs)(x) > R(fabs)(expected) ? R(fabs)(x) : R(fabs)(expected);
    int exponent;
    R(frexp)(size > {smallest} ? size : {smallest}, &exponent);
    const double error = (double)R(ldexp)(R(fabs)(actual - expected), {digits} - exponent);
    if (error > worst->error && !worst->wrong) *worst = (struct worst){{error, (double)operand, 0}};
  }}
}}
"""


class _Worst(ctypes.Structure):
    _fields_ = (("error", ctypes.c_double), ("at", ctypes.c_double), ("wrong", ctypes.c_int64))


def _source() -> str:
    parts = [_PREAMBLE]
    for suffix, type_, prefix, operand, define in (
        ("f32", "float", "FLT", "byoc_from_bits_f32((uint32_t)k)", "#define real double\n#define R(f) f"),
        (
            "f64",
            "double",
            "DBL",
            "random_f64(&state)",
            "#undef real\n#undef R\n#define real long double\n#define R(f) f##l",
        ),
    ):
        for name, function in FUNCTIONS.items():
            parts.append(
                _SWEEP.format(
                    define=define,
                    name=name,
                    suffix=suffix,
                    type=type_,
                    operand=operand,
                    reference=function.reference,
                    call=function.call.replace("x", "operand"),
                    largest=f"{prefix}_MAX",
                    smallest=f"{prefix}_MIN",
                    epsilon=f"{prefix}_EPSILON",
                    digits=f"{prefix}_MANT_DIG",
                    by_operand=int(function.by_operand),
                )
            )
            define = ""
    return "\n".join(parts)


def _load(march: str) -> ctypes.CDLL:
    built = find_toolchain().compile(_source(), BuildOptions(2, march, ("-Wall", "-Wextra", "-Werror")))
    check_target(built.target, f"sweeps for {march}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweeps.so"
        path.write_bytes(built.data)
        return ctypes.CDLL(os.fspath(path))


def _sweep(library: ctypes.CDLL, name: str, count: int, step: int) -> _Worst:
    """Gives the worst of a function over the numbers below `count`, each `step`-th, on all processors."""
    length = -(-count // CHUNKS)

    def run(chunk: int) -> _Worst:
        worst = _Worst()
        arguments = [ctypes.c_uint64(value) for value in (chunk * length, min(count, (chunk + 1) * length), step)]
        library[f"sweep_{name}"](*arguments, ctypes.byref(worst))
        return worst

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(run, range(CHUNKS)))
    return max(found, key=lambda worst: (worst.wrong, worst.error))


def run(num_rounds: int, steps: Sequence[int]) -> dict[str, Any]:
    """Prints and gives the errors.

    Args:
        num_rounds: times ten million random numbers of float64.
        steps: each so many-th of all numbers of float32.
    """
    result: dict[str, Any] = {}
    libraries = {march: _load(march) for march in MARCHES}
    for step in steps:
        print(
            f"  {'largest ULP, and where':24}" + "".join(f"{f'{s} {m}':>26}" for s in ("f32", "f64") for m in MARCHES)
        )
        for name in FUNCTIONS:
            line = f"    {name:22}"
            for suffix, count, stride in (("f32", 1 << 32, step), ("f64", SAMPLES * num_rounds, 1)):
                for march, library in libraries.items():
                    worst = _sweep(library, f"{name}_{suffix}", count, stride)
                    figures = {"ulp": worst.error, "at": worst.at, "wrong": worst.wrong}
                    result[f"{name} {suffix} {march} of each {step}"] = figures
                    text = f"{worst.wrong} wrong" if worst.wrong else f"{worst.error:.3f}"
                    line += f"{f'{text} at {worst.at:.7g}':>26}"
            print(line, flush=True)
    return result
