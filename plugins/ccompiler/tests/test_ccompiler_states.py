"""States under generated C: elementwise updates in place, and caches read in another order of axes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
from byoc_core import VirtualMachine, parse
from byoc_core.ir import IRModule
from byoc_core.transform import KeepStates, evaluate_function
from byoc_core.vm import Call, CallKind

AVERAGE = """
@R.function
def main(x: R.Tensor(("n", 8)), h: R.Tensor(("n", 8))):
    R.func_attr({"input_names": ("x", "h"), "output_names": ("y", "g"), "states": (("h", "g"),)})
    a = R.multiply(x, R.const(0.25, "float32"))
    b = R.multiply(h, R.const(0.75, "float32"))
    g = R.add(a, b)
    y = R.nn.relu(g)
    return y, g
"""
ATTENTION = """
@R.function
def main(q: R.Tensor(("b", 2, "n", 8)), k: R.Tensor(("b", 2, "n", 8)), v: R.Tensor(("b", 2, "n", 8)),
         pk: R.Tensor(("b", 2, "p", 8)), pv: R.Tensor(("b", 2, "p", 8))):
    R.func_attr({"input_names": ("q", "k", "v", "past_k", "past_v"), "output_names": ("y", "present_k", "present_v")})
    rk = R.nn.relu(k)
    key = R.concat(pk, rk, axis=2)
    value = R.concat(pv, v, axis=2)
    y = R.nn.attention(q, key, value)
    return y, key, value
"""


def test_an_elementwise_update_is_in_place() -> None:
    executable = byoc_core.build(parse(AVERAGE), ["ccompiler"])
    assert executable.report_data["offloaded_share"] == 1
    (state,) = executable.states["main"]
    assert state.copied_nbytes == {}
    vm = VirtualMachine(executable)
    h = np.zeros((5, 8), np.float32)
    for step in range(4):
        x = np.linspace(-1, step, 40, dtype=np.float32).reshape(5, 8)
        h = x * np.float32(0.25) + h * np.float32(0.75)
        np.testing.assert_allclose(vm["main"](x), np.maximum(h, 0), rtol=1e-6)


def cache_module() -> IRModule:
    return KeepStates([("past_k", "present_k"), ("past_v", "present_v")])(parse(ATTENTION))


def test_attention_reads_caches_in_place(tmp_path: Path) -> None:
    executable = byoc_core.build(cache_module(), ["ccompiler"])
    assert executable.report_data["offloaded_share"] == 1
    copied = [dict(state.copied_nbytes) for state in executable.states["main"]]
    assert all("p" not in str(nbytes) for nbytes in (*copied[0].values(), *copied[1].values())), copied
    executable.save(tmp_path / "model.byoc")
    vm = VirtualMachine(byoc_core.load(tmp_path / "model.byoc", allow_native=True))
    plain = parse(ATTENTION)
    rng = np.random.default_rng(0)
    caches: list[Any] = [np.zeros((3, 2, 0, 8), np.float32)] * 2
    for length in (5, 1, 1, 17, 1):
        inputs = [rng.standard_normal((3, 2, length, 8), np.float32) for _ in range(3)]
        expected, *caches = evaluate_function(plain, "main", [*inputs, *caches])
        found = vm["main"](*inputs)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_no_kernel_copies_a_cache() -> None:
    """Attention reads the rows of caches in their places; the only transposing kernel turns the new rows of values."""
    executable = byoc_core.build(cache_module(), ["ccompiler"])
    kernels = re.findall(r"^/\* ([a-z_.]+) \*/$", executable.get_source(), re.MULTILINE)
    assert sorted(kernels) == ["nn.attention", "nn.relu", "permute_dims"]
    main = executable.program.functions[0]
    caches = {number for state in main.states for number in (state.param, len(main.params) + state.result)}
    readers = [call for call in main.code if isinstance(call, Call) and call.kind is CallKind.EXTERN]
    assert [not caches.isdisjoint(call.args) for call in readers] == [False, False, True]
