"""Scenarios S001: BYOC as a transformation from module to module."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import CodegenError, IRTypeError, VerifyError
from byoc_core.ir import CALL_DPS_PACKED, IRModule, tensor, verify
from byoc_core.partitioning import FuseOpsByPattern, PartitionRequest, RunCodegen, partition
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime.module import NDArray
from byoc_core.transform import BindParams, FoldConstants, evaluate_function

from core.tests.conftest import FakeBackend, RunCompiled

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

CONV_RELU = """
@R.ir_module
class MyModule:
    @R.function
    def conv_relu(x: R.Tensor((1, 10, 32, 32)), w: R.Tensor(WEIGHT)):
        R.func_attr({"Codegen": "BACKEND", "global_symbol": "conv_relu_lib"})
        with R.dataflow():
            lv0 = R.nn.conv2d(x, w, padding=(1, 1)LAYOUT)
            gv0 = R.nn.relu(lv0)
            R.output(gv0)
        return gv0

    @R.function
    def main(x: R.Tensor((1, 10, 32, 32)), w0: R.Tensor(WEIGHT)):
        lv0: R.Tensor((1, 20, 32, 32)) = conv_relu(x, w0)
        return lv0
"""


def conv_relu(backend: str, weight: str = "(20, 10, 3, 3)", layout: str = "") -> str:
    return CONV_RELU.replace("BACKEND", backend).replace("WEIGHT", weight).replace("LAYOUT", layout)


@pytest.mark.parametrize(
    ("shape", "layout"), [((20, 10, 3, 3), ""), ((10, 20, 3, 3), ', kernel_layout="IOHW"')], ids=["OIHW", "IOHW"]
)
def test_s001_1_conv_relu_becomes_a_call_of_the_chosen_symbol(
    backend: str, shape: tuple[int, ...], layout: str
) -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal(shape).astype(np.float32)
    module = BindParams({"w0": weight})(R.parse(conv_relu(backend, str(shape), layout)))
    if backend == "examplejson":
        with pytest.raises(CodegenError, match=r"op `nn\.conv2d` in function `conv_relu`"):
            RunCodegen()(module)
        return
    compiled = RunCodegen()(module)
    (call,) = compiled["main"].bindings
    assert (call.op, call.attrs["symbol"], call.result.type) == (
        CALL_DPS_PACKED,
        "conv_relu_lib",
        tensor((1, 20, 32, 32)),
    )
    assert call.operands[0] is compiled["main"].params[0]
    assert [operand.type for operand in call.operands[1:]] == [tensor(shape)]

    x = rng.standard_normal((1, 10, 32, 32)).astype(np.float32)
    executable = byoc_core.build(compiled, [])
    assert any("conv_relu_lib" in m.function_names for m in executable.modules)  # it was offloaded
    result = byoc_core.VirtualMachine(executable)["main"](x)
    (exact,) = evaluate_function(module, "main", [x], exact=True)
    positive = BindParams({"w0": np.abs(weight)})(R.parse(conv_relu(backend, str(shape), layout)))
    (magnitude,) = evaluate_function(positive, "main", [np.abs(x)], exact=True)
    terms = 90 * np.finfo(np.float32).eps / 2  # gamma_K of a sum of K = 10 * 3 * 3 products
    assert np.all(np.abs(result - exact) <= terms / (1 - terms) * magnitude)


def test_s001_1_the_documents_literal_module_is_refused() -> None:
    with pytest.raises(IRTypeError) as caught:
        R.parse(conv_relu("host", "(10, 20, 3, 3)"))
    assert str(caught.value) == (
        "op `nn.conv2d`, operand `weight=w`: axis 1 (input channels) has size 20; "
        "expected 10, because operand `x` has 10 channels (axis 1)\n"
        '     6 |         R.func_attr({"Codegen": "host", "global_symbol": "conv_relu_lib"})\n'
        "     7 |         with R.dataflow():\n"
        ">    8 |             lv0 = R.nn.conv2d(x, w, padding=(1, 1))\n"
        "     9 |             gv0 = R.nn.relu(lv0)\n"
        "    10 |             R.output(gv0)"
    )
    undefined = conv_relu("host").replace("w0: R.Tensor((20, 10, 3, 3))", "w1: R.Tensor((20, 10, 3, 3))")
    with pytest.raises(byoc_core.errors.ScriptError, match="`w0` is not defined"):
        R.parse(undefined)


def test_s001_2_an_extern_is_called_in_destination_passing_style() -> None:
    module = R.parse("""
@R.function
def main(a: R.Tensor((2, 2)), b: R.Tensor((2, 2))):
    s, d = R.call_dps_packed("sum_difference", (a, b), out_types=[R.Tensor((2, 2)), R.Tensor((2,))])
    return d, s
""")
    seen: list[tuple[Any, ...]] = []

    def sum_difference(*arguments: NDArray) -> str:
        seen.append(tuple(argument.shape for argument in arguments))
        a, b, total, difference = arguments
        total[...] = a + b
        difference[...] = (a - b).sum(axis=1)
        return "ignored"

    vm = byoc_core.VirtualMachine(byoc_core.build(module, []), externs={"sum_difference": sum_difference})
    a, b = np.arange(4, dtype=np.float32).reshape(2, 2), np.ones((2, 2), np.float32)
    difference, total = vm["main"](a, b)
    assert seen == [((2, 2), (2, 2), (2, 2), (2,))]
    np.testing.assert_array_equal(total, a + b)
    np.testing.assert_array_equal(difference, (a - b).sum(axis=1))


TWO_BACKENDS = """
@R.ir_module
class Two:
    @R.function
    def one(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "aone", "global_symbol": "one"})
        y = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
        return y

    @R.function
    def two(x: R.Tensor((4,))):
        R.func_attr({"Codegen": "btwo", "global_symbol": "two"})
        y = R.multiply(x, R.const([5.0, 6.0, 7.0, 8.0], "float32"))
        return y

    @R.function
    def main(x: R.Tensor((4,))):
        a = one(x)
        b = two(a)
        return b
"""


def only(backend: str, module: IRModule, plugin: object) -> IRModule:
    """Run codegen for the functions of a single backend and restore the others' annotations."""
    others = {n: f for n, f in module.functions.items() if f.attrs.get("Codegen") not in (None, backend)}
    plain = {n: f.with_attrs(Codegen=None) if n in others else f for n, f in module.functions.items()}
    compiled = RunCodegen(backends=[plugin])(module.with_functions(plain))
    return compiled.with_functions({n: others.get(n, f) for n, f in compiled.functions.items()})


def test_s001_3_two_runs_for_two_backends_keep_both_modules_and_constants(
    fake_backend: type[FakeBackend], run_compiled: RunCompiled
) -> None:
    module = R.parse(TWO_BACKENDS)
    first = only("aone", module, fake_backend("aone", None))
    between = FoldConstants()(first)
    second = only("btwo", between, fake_backend("btwo", None))
    assert [external.function_names for external in second.attrs["external_mods"]] == [("one",), ("two",)]
    assert set(module.constants) <= set(second.constants)
    x = np.arange(4, dtype=np.float32)
    (result,) = run_compiled(second, "main", [x])
    np.testing.assert_array_equal(result, (x + np.arange(1, 5)) * np.arange(5, 9))


def test_s001_4_the_policy_is_replaceable(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
@R.function
def main(x: R.Tensor((4,))):
    a = R.exp(x)
    b = R.exp(a)
    return b
""")

    class OnlyTheLast:
        def __call__(self, given: IRModule, request: PartitionRequest) -> IRModule:
            from dataclasses import replace

            main = given["main"]
            claimed = replace(main.bindings[-1], codegen=request.backends[0].name)
            return given.with_function(replace(main, bindings=(*main.bindings[:-1], claimed)))

    parted = partition(module, [fake_backend("fake", None)], policy=OnlyTheLast())
    assert [binding.op.name for binding in parted["main"].bindings] == ["exp", "call"]
    assert [binding.op.name for binding in parted["fake_main_0"].bindings] == ["exp"]


def test_s001_5_patterns_match_around_a_call_that_another_backend_took(fake_backend: type[FakeBackend]) -> None:
    module = R.parse("""
@R.function
def main(x: R.Tensor((4,))):
    a = R.call_dps_packed("taken", (x,), out_types=[R.Tensor((4,))])
    b = R.nn.relu(a)
    return b
""")
    call = is_op("call_dps_packed")(wildcard()).has_attr(symbol="taken")
    fused = FuseOpsByPattern([CompositePattern("fake.taken_relu", is_op("nn.relu")(call))])(module)
    (composite,) = fused["main"].bindings
    assert composite.attrs == {"name": "fake.taken_relu", "pattern": "call_dps_packed_nn.relu_"}
    other = is_op("call_dps_packed")(wildcard()).has_attr(symbol="other")
    unmatched = FuseOpsByPattern([CompositePattern("fake.other_relu", is_op("nn.relu")(other))])(module)
    assert unmatched["main"] is module["main"]


def test_s001_6_two_functions_with_one_symbol_are_both_named() -> None:
    module = R.parse(TWO_BACKENDS.replace('"global_symbol": "two"', '"global_symbol": "one"'))
    with pytest.raises(VerifyError, match="functions `one` and `two`: have the same global symbol `one`"):
        verify(module)
    with pytest.raises(VerifyError, match="functions `one` and `two`"):
        byoc_core.build(module, [])
    with pytest.raises(VerifyError, match="functions `one` and `two`"):
        RunCodegen()(module)
