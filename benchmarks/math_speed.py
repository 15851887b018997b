"""Microseconds of functions in C over a million numbers of float32, beside ONNX Runtime on one thread.

Loops of generated C are compiled for this processor and for the baseline of the family; `core` stands for the loops of
the core's C extension. Ratios are taken within rounds. No function is faster than `x + 1`, a loop bound by memory.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from byoc_core.native.toolchain import BuildOptions, find_toolchain
from byoc_core.runtime.vector_functions import vector_function

from benchmarks.pairing import measure, paired_ratio, time_call

SIZE = 1 << 20
MARCHES = ("native", "generic")
FUNCTIONS: Mapping[str, tuple[str, str | None, dict[str, Any]]] = {
    "x + 1": ("x[i] + 1.0f", None, {}),
    "exp": ("byoc_exp_f32(x[i])", "Exp", {}),
    "log": ("byoc_log_f32(x[i])", "Log", {}),
    "tanh": ("byoc_tanh_f32(x[i])", "Tanh", {}),
    "erf": ("byoc_erf_f32(x[i])", "Erf", {}),
    "sigmoid": ("byoc_sigmoid_f32(x[i])", "Sigmoid", {}),
    "gelu": ("byoc_gelu_f32(x[i])", "Gelu", {}),
    "gelu tanh": ("byoc_gelu_tanh_f32(x[i])", "Gelu", {"approximate": "tanh"}),
    "softplus": ("byoc_softplus_f32(x[i])", "Softplus", {}),
    "mish": ("byoc_mish_f32(x[i])", "Mish", {}),
    "elu": ("byoc_elu_f32(x[i], 1.0f)", "Elu", {}),
    "hard_swish": ("byoc_hard_swish_f32(x[i])", "HardSwish", {}),
    "sin": ("byoc_sin_f32(x[i])", "Sin", {}),
    "cos": ("byoc_cos_f32(x[i])", "Cos", {}),
    "tan": ("byoc_tan_f32(x[i])", "Tan", {}),
    "asin": ("byoc_asin_f32(x[i])", "Asin", {}),
    "acos": ("byoc_acos_f32(x[i])", "Acos", {}),
    "atan": ("byoc_atan_f32(x[i])", "Atan", {}),
    "sinh": ("byoc_sinh_f32(x[i])", "Sinh", {}),
    "cosh": ("byoc_cosh_f32(x[i])", "Cosh", {}),
    "asinh": ("byoc_asinh_f32(x[i])", "Asinh", {}),
    "acosh": ("byoc_acosh_f32(x[i] + 2.0f)", None, {}),
    "atanh": ("byoc_atanh_f32(x[i])", "Atanh", {}),
}
"""The element in C, and ONNX's op with attributes, by name."""
CORE_FUNCTIONS = ("exp", "log", "softplus")


def _load(march: str) -> ctypes.CDLL:
    lines = ['#include "byoc_ffi.h"', '#include "byoc_scalar.h"']
    for number, (expression, _, _) in enumerate(FUNCTIONS.values()):
        lines.append(f"BYOC_EXPORT void f{number}(const float *restrict x, float *restrict out, int64_t size) {{")
        lines.append(f"  for (int64_t i = 0; i < size; ++i) out[i] = {expression};\n}}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "functions.so"
        path.write_bytes(find_toolchain().compile("\n".join(lines), BuildOptions(3, march)).data)
        return ctypes.CDLL(os.fspath(path))


def _peer(op: str, attrs: Mapping[str, Any], x: Any, out: Any) -> Callable[[], object]:
    """Return a call of an op in ONNX Runtime, with a given result buffer."""
    import onnxruntime
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"], **attrs)], "one_op", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, [SIZE], x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, [SIZE], out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def run(num_rounds: int) -> dict[str, Any]:
    """Print and return the times and the ratios."""
    result: dict[str, Any] = {}
    libraries = {march: _load(march) for march in MARCHES}
    x = np.abs(np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)) * 2 - 1
    outs = {march: np.zeros_like(x) for march in (*MARCHES, "core", "ORT")}
    for number, (name, (_, op, attrs)) in enumerate(FUNCTIONS.items()):
        functions: dict[str, Callable[..., object]] = {
            march: library[f"f{number}"] for march, library in libraries.items()
        }
        if name in CORE_FUNCTIONS and (address := vector_function(name)):
            functions["core"] = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
        contestants = {}
        for which, function in functions.items():
            pointers = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(outs[which].ctypes.data))
            contestants[which] = time_call(partial(function, *pointers, ctypes.c_int64(SIZE)))
        if op is not None:
            contestants["ORT"] = time_call(_peer(op, attrs, x, outs["ORT"]))
        samples = measure(contestants, num_rounds=num_rounds)
        line = f"  {name:12}" + "".join(f"{march:>10} {found.median * 1e6:8.0f} us" for march, found in samples.items())
        result[name] = {march: found.to_json() for march, found in samples.items()}
        if "ORT" in samples:
            for which in functions:
                np.testing.assert_allclose(outs[which], outs["ORT"], rtol=1e-4, atol=1e-5)
            ratio = paired_ratio(samples["ORT"], samples["native"])
            line += f"   ORT / native {ratio}"
            result[name]["ORT / native"] = ratio.to_json()
        print(line, flush=True)
    return result
