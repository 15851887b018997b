"""The largest errors of the functions in generated C: of float32 over all inputs, of float64 over random inputs.

Every function is compiled with the toolchain's options, with and without fused multiply-add. Functions of float64 are
compared with the C library in `long double`. Functions of float32 are compared with the float64 functions of the same
name if these need no library call (some ten times quicker, and wrong by less than 1e-8 of the unit), else with the C
library.

Errors are in units in the last place (ULP) of the result, or of a larger magnitude named by the headers. Below the
normal range the unit is the smallest number. Attributes have the defaults of the ops.
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

ARCH = "x86-64-v3"
VARIANTS = {"fused": (), "not fused": ("-mno-fma",)}
SAMPLES = 10_000_000
CHUNKS = 64


class Function(NamedTuple):
    """The definition of a function of the headers.

    Attributes:
        reference: the function in C, in `real`, over `x`; functions of the C library are called `R(name)`.
        call: the arguments of the call, if not only `x`.
        least: the magnitude of the ULP, if larger than the result.
    """

    reference: str
    call: str = "(x)"
    least: str = "0"


# A factor with a limit; the other factor of the product is 0 long before.
_LIMITED = "(x < -1e5 ? -1e5 : x)"
_OPERAND = "R(fabs)(x)"
_SELU = ("1.0507009873554805", "1.7580993408473766")
_SOFTPLUS = "(x > 0 ? x : 0) + R(log1p)(R(exp)(-R(fabs)(x)))"
FUNCTIONS = {
    "exp": Function("R(exp)(x)"),
    "exp_nonpositive": Function("R(exp)(-(R(fabs)(x) < 87 ? R(fabs)(x) : 87))", "(-(fabs(x) < 87 ? fabs(x) : 87))"),
    "expm1": Function("R(expm1)(x)"),
    "log": Function("R(log)(x)"),
    "tanh": Function("R(tanh)(x)"),
    "erf": Function("R(erf)(x)"),
    "sigmoid": Function("1 / (1 + R(exp)(-x))"),
    "softplus": Function(_SOFTPLUS),
    "gelu": Function(f"{_LIMITED} * (R(erfc)(x / -R(sqrt)(2)) / 2)", least=_OPERAND),
    "gelu_tanh": Function(
        f"{_LIMITED} / (1 + R(exp)(-2 * R(sqrt)(2 / R(acos)(-1)) * (x + (real)0.044715L * x * x * x)))",
        least=_OPERAND,
    ),
    "swish": Function(f"{_LIMITED} / (1 + R(exp)(-x))", "(x, 1)", least=_OPERAND),
    "mish": Function(f"{_LIMITED} * R(tanh)({_SOFTPLUS})", least=_OPERAND),
    "softsign": Function("R(fabs)(x) == INFINITY ? (x > 0 ? 1 : -1) : x / (1 + R(fabs)(x))"),
    "hard_swish": Function(
        "x < -3 ? 0 : x / 6 + (real)0.5 > 1 ? x : x * (x / 6 + (real)0.5)",
        least=_OPERAND,
    ),
    "elu": Function("x < 0 ? R(expm1)(x) : x", "(x, 1)"),
    "selu": Function(f"x < 0 ? {_SELU[1]} * R(expm1)(x) : {_SELU[0]} * x", f"(x, {', '.join(_SELU)})"),
    "celu": Function("x < 0 ? R(expm1)(x) : x", "(x, 1)", least="1"),
}
TRIGONOMETRY = ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
"""Functions of float32 alone, compared with the float64 functions of the C library."""

_COMMON = """
#include "byoc_ffi.h"
#include "byoc_scalar.h"
#include <float.h>

struct worst { double error, at; int64_t wrong; };
"""

_F32 = """
static inline double ref_exp(double x) { return byoc_exp_f64(x); }
static inline double ref_expm1(double x) { return byoc_expm1_f64(x); }
static inline double ref_log(double x) { return byoc_log_f64(x); }
static inline double ref_log1p(double x) { return byoc_log1p_unit_f64(x); }
static inline double ref_tanh(double x) { return byoc_tanh_f64(x); }
static inline double ref_erf(double x) { return fabs(x) > 6 ? copysign(1, x) : erf(x); }
static inline double ref_erfc(double x) { return x > 28 ? 0 : x < -6 ? 2 : erfc(x); }
#define ref_fabs fabs
#define ref_sqrt sqrt
#define ref_acos acos
#define R(f) ref_##f
typedef double real;
enum { BLOCK = 1024 };

/* Infinity counts as 2**128. The exponent field of 1 / unit is 2046 + 23 less that of the result. If exactly one of
 * actual and expected is NaN, the error is infinite. */
static inline float error_f32(float actual, double expected, double least) {
  const double largest = 0x1p128;
  const double bounded_expected = expected > largest ? largest : expected < -largest ? -largest : expected;
  const double bounded_actual = actual > largest ? largest : actual < -largest ? -largest : (double)actual;
  const double size = least > fabs(bounded_expected) ? least : fabs(bounded_expected);
  const uint64_t exponent = byoc_bits_f64(size > FLT_MIN ? size : FLT_MIN) & UINT64_C(0x7ff0000000000000);
  const double error = fabs(bounded_actual - bounded_expected) * byoc_from_bits_f64((UINT64_C(2069) << 52) - exponent);
  const int both = (actual != actual) & (expected != expected);
  return both ? 0 : error == error ? (float)error : INFINITY;
}
"""

_SWEEP_F32 = """
BYOC_EXPORT void sweep_{name}_f32(uint64_t first, uint64_t end, uint64_t step, struct worst *worst) {{
  for (uint64_t start = first; start < end; start += BLOCK * step) {{
    float operands[BLOCK], actual[BLOCK], errors[BLOCK];
    real expected[BLOCK], least[BLOCK];
    for (uint32_t k = 0; k < BLOCK; ++k) {{
      operands[k] = byoc_from_bits_f32((uint32_t)start + k * (uint32_t)step);
    }}
    for (uint32_t k = 0; k < BLOCK; ++k) {{
      const float operand = operands[k];
      actual[k] = byoc_{name}_f32{call};
    }}
    for (uint32_t k = 0; k < BLOCK; ++k) {{
      const real x = operands[k];
      expected[k] = {reference};
      least[k] = {least};
    }}
    for (uint32_t k = 0; k < BLOCK; ++k) errors[k] = error_f32(actual[k], expected[k], least[k]);
    uint32_t most = 0;
    for (uint32_t k = 0; k < BLOCK; ++k) most = byoc_bits_f32(errors[k]) > most ? byoc_bits_f32(errors[k]) : most;
    if (byoc_from_bits_f32(most) <= worst->error) continue;
    for (uint32_t k = 0; k < BLOCK; ++k) {{
      if (byoc_bits_f32(errors[k]) != most) continue;
      worst->at = operands[k];
    }}
    worst->error = byoc_from_bits_f32(most);
    worst->wrong = worst->error == INFINITY;
  }}
}}
"""

_F64 = """
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
#undef R
#define R(f) f##l
#define real long double
"""

_SWEEP_F64 = """
BYOC_EXPORT void sweep_{name}_f64(uint64_t first, uint64_t end, uint64_t step, struct worst *worst) {{
  uint64_t state = first * 2 + 88172645463325252u;
  for (uint64_t k = first; k < end; k += step) {{
    const double operand = random_f64(&state);
    const long double x = operand, expected = {reference};
    const double rounded = (double)expected, actual = byoc_{name}_f64{call};
    if (!isfinite(rounded) || !isfinite(actual)) {{
      const int same = rounded == actual || (rounded != rounded && actual != actual);
      const int edge = fabs(rounded) > DBL_MAX / 2 && fabs(actual) > DBL_MAX / 2;
      if (!same && !edge && !worst->wrong++) worst->at = operand;
      continue;
    }}
    const long double least = {least}, size = least > fabsl(expected) ? least : fabsl(expected);
    int exponent;
    frexpl(size > DBL_MIN ? size : DBL_MIN, &exponent);
    const double error = (double)ldexpl(fabsl(actual - expected), DBL_MANT_DIG - exponent);
    if (error > worst->error && !worst->wrong) *worst = (struct worst){{error, operand, 0}};
  }}
}}
"""


class _Worst(ctypes.Structure):
    _fields_ = (("error", ctypes.c_double), ("at", ctypes.c_double), ("wrong", ctypes.c_int64))


def _source() -> str:
    parts = [_COMMON]
    for head, sweep in ((_F32, _SWEEP_F32), (_F64, _SWEEP_F64)):
        parts.append(head)
        for name, (reference, call, least) in FUNCTIONS.items():
            operand = call.replace("x", "operand")
            parts.append(sweep.format(name=name, reference=reference, call=operand, least=least))
        if sweep is _SWEEP_F32:
            parts += (sweep.format(name=f, reference=f"{f}(x)", call="(operand)", least="0") for f in TRIGONOMETRY)
    return "\n".join(parts)


def _load(flags: tuple[str, ...]) -> ctypes.CDLL:
    built = find_toolchain().compile(_source(), BuildOptions(3, ARCH, ("-Wall", "-Wextra", "-Werror", *flags)))
    check_target(built.target, "the sweeps")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweeps.so"
        path.write_bytes(built.data)
        return ctypes.CDLL(os.fspath(path))


def _sweep(library: ctypes.CDLL, name: str, count: int, step: int) -> _Worst:
    """Return the worst error of a function over every `step`-th number below `count`, on all processors."""
    length = count // CHUNKS

    def run(chunk: int) -> _Worst:
        worst = _Worst()
        arguments = [ctypes.c_uint64(value) for value in (chunk * length, (chunk + 1) * length, step)]
        library[f"sweep_{name}"](*arguments, ctypes.byref(worst))
        return worst

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(run, range(CHUNKS)))
    return max(found, key=lambda worst: (worst.wrong, worst.error))


def run(num_rounds: int, steps: Sequence[int]) -> dict[str, Any]:
    """Print and return the errors.

    Args:
        num_rounds: the number of random float64 numbers, in units of ten million.
        steps: the strides through all numbers of float32.
    """
    result: dict[str, Any] = {}
    libraries = {variant: _load(flags) for variant, flags in VARIANTS.items()}
    for step in steps:
        print(
            f"  {'largest ULP, and where':24}" + "".join(f"{f'{s} {m}':>26}" for s in ("f32", "f64") for m in VARIANTS)
        )
        for name in (*FUNCTIONS, *TRIGONOMETRY):
            line = f"    {name:22}"
            sweeps = (("f32", 1 << 32, step), ("f64", SAMPLES * num_rounds, 1))
            for suffix, count, stride in sweeps[:1] if name in TRIGONOMETRY else sweeps:
                for variant, library in libraries.items():
                    worst = _sweep(library, f"{name}_{suffix}", count, stride)
                    figures = {"ulp": worst.error, "at": worst.at, "wrong": worst.wrong}
                    result[f"{name} {suffix} {variant}, of each {step}"] = figures
                    text = f"{worst.wrong} wrong" if worst.wrong else f"{worst.error:.3f}"
                    line += f"{f'{text} at {worst.at:.7g}':>26}"
            print(line, flush=True)
    return result
