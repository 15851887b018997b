"""Modules learn which inputs of a call are constants of the program, when a machine is made."""

from __future__ import annotations

from collections.abc import Mapping

import byoc_core
import numpy as np
import pytest
from byoc_core.errors import LinkError
from byoc_core.ir import IRModule, Var, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.runtime.module import (
    ConstantInput,
    NDArray,
    PackedFunction,
    RuntimeModule,
    Signature,
    TensorSpec,
)
from byoc_core.vm import VirtualMachine

SPEC = TensorSpec("t", "float32", (3,))


class Adding(RuntimeModule):
    """``out = x + y``; the sum with a constant is marked by 100."""

    type_key = "adding"
    function_names = ("add",)

    def __init__(self) -> None:
        self.constants_of_calls: list[Mapping[int, ConstantInput]] = []

    def find_function(self, name: str) -> PackedFunction:
        return PackedFunction(name, self._add, Signature((SPEC, SPEC), (SPEC,)))

    def find_for_constants(self, name: str, constants: Mapping[int, ConstantInput]) -> PackedFunction:
        self.constants_of_calls.append(constants)

        def add(x: NDArray, y: NDArray, out: NDArray) -> None:
            for number, argument in enumerate((x, y)):
                if number in constants:
                    np.testing.assert_array_equal(argument, constants[number].array)  # still passed
            self._add(x, y, out)
            out += 100

        return PackedFunction(name, add, Signature((SPEC, SPEC), (SPEC,)))

    @staticmethod
    def _add(x: NDArray, y: NDArray, out: NDArray) -> None:
        np.add(x, y, out=out)


def executable(module: Adding, size: int = 3) -> byoc_core.Executable:
    """Return ``(x + [0, 1, 2]) + x``, each sum a call of the module."""
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((3,)))
    out_types = [tensor((3,))]
    first = fb.emit("call_dps_packed", x, np.arange(size, dtype=np.float32), symbol="add", out_types=out_types)
    assert isinstance(first, Var)
    result = fb.emit("call_dps_packed", first, x, symbol="add", out_types=out_types)
    ir = IRModule({"main": fb.finish(result)}, fb.constants, {"external_mods": (module,)})  # type: ignore[arg-type]
    return byoc_core.build(ir, [])


def test_constants_among_the_inputs_of_a_call_are_stated() -> None:
    module, x = Adding(), np.ones(3, np.float32)
    built = executable(module)
    machine = VirtualMachine(built)
    np.testing.assert_array_equal(machine["main"](x), x + np.arange(3) + 100 + x)
    (constants,) = module.constants_of_calls
    (constant,) = constants.values()
    assert list(constants) == [1]
    assert constant.array is built.constants[constant.digest]


def test_a_function_of_the_caller_learns_nothing() -> None:
    module, x = Adding(), np.ones(3, np.float32)

    def add(a: NDArray, b: NDArray, out: NDArray) -> None:
        np.add(a, b, out=out)

    machine = VirtualMachine(executable(module), externs={"add": add})
    np.testing.assert_array_equal(machine["main"](x), x + np.arange(3) + x)
    assert module.constants_of_calls == []


def test_modules_without_the_method_run_as_before() -> None:
    assert RuntimeModule.find_for_constants(Adding(), "add", {}).name == "add"


def test_a_constant_of_another_type_is_refused_before_the_module_sees_it() -> None:
    module = Adding()
    with pytest.raises(LinkError, match="register c0 does not fit `t` of the inputs of `add`"):
        VirtualMachine(executable(module, size=4))
    assert module.constants_of_calls == []
