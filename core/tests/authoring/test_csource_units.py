"""Long sources are compiled in several translation units, and stay a single text valid as a unit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from byoc_core.authoring import c, csource_units
from byoc_core.authoring.csource import CSourceCodegen, FunctionScope, KernelFacts
from byoc_core.errors import ToolchainError
from byoc_core.ir import Binding, ConstantStore, Function, FunctionBuilder, IRModule, tensor
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.compile_units import MAX_UNITS, translation_units
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule

SIZE = 32
OPS = ("add", "multiply", "add", "subtract", "multiply", "add")


class Codegen(CSourceCodegen):
    """A backend with kernels of statements, callable from other units; kernels of an op call a shared function."""

    def visit_call(self, scope: FunctionScope, binding: Binding, inputs: Any) -> None:
        definition = "static float {name}(float value) { return value; }"
        hint = f"same_{binding.op.name}"
        same = c.Callee(scope.definitions.name(hint, f"/* {hint} */ {definition}"), lambda value: value)
        one, other = c.Buffer("one", "float32"), c.Buffer("other", "float32")
        out, index = c.Buffer("out", "float32", c.MemoryAccess.WRITE), c.Variable("i")
        symbol = {"add": "+", "multiply": "*", "subtract": "-"}[binding.op.name]
        value = c.Call(same, (c.Binary(symbol, one[index], other[index]),), c.CType("float32"))
        loop = c.For(index, c.Size(0), c.Size(SIZE), (c.Store(out, index, value),))
        function = c.Function(scope.kernel_name(binding.op.name), (one, other, out), (loop,))
        text, prototype = c.print_function(function, c.C11_KERNELS), c.print_prototype(function, c.C11_KERNELS)
        facts = KernelFacts((binding,), function)
        name = scope.declare_kernel(text, binding.op.name, facts, prototype=self.prototype(prototype))
        scope.call(name, *inputs, scope.buffer(binding.result))

    def prototype(self, text: str) -> str:
        return text


class TextCodegen(Codegen):
    """A backend with kernels without declarations."""

    def prototype(self, text: str) -> str:
        return ""


def module_of_ops() -> IRModule:
    """Return a function with a chain of ops with constant operands, long enough for the table."""
    store = ConstantStore()
    builder: Any = FunctionBuilder("chain", ops=default_ops())
    value = builder.param("x", tensor((SIZE,)))
    for number, op in enumerate(OPS):
        value = builder.emit(op, value, store.add(np.arange(SIZE, dtype=np.float32) + number))
    function: Function = builder.finish(value)
    return IRModule({"chain": function}, store)


def compute() -> np.ndarray[Any, np.dtype[np.float32]]:
    value = np.linspace(-1, 1, SIZE, dtype=np.float32)
    for number, op in enumerate(OPS):
        value = getattr(np, op)(value, np.arange(SIZE, dtype=np.float32) + number)
    return value


def generate(monkeypatch: pytest.MonkeyPatch, lines: int, codegen: type[Codegen] = Codegen) -> CSourceModule:
    monkeypatch.setattr(csource_units, "_LINES", lines)
    # A unit has shared functions that only kernels of other units call.
    return codegen(BuildOptions(extra_flags=("-Wall", "-Wextra", "-Werror"))).generate(module_of_ops())


def test_units_compute_what_one_unit_does(monkeypatch: pytest.MonkeyPatch) -> None:
    split, whole = generate(monkeypatch, 6), generate(monkeypatch, 10_000)
    assert list(translation_units(split.get_source())) == [*(f"module_{k}.c" for k in range(3)), "module.h"]
    assert list(translation_units(whole.get_source())) == ["module.c"]
    x = np.linspace(-1, 1, SIZE, dtype=np.float32)
    # The text of several units is a unit as it stands, too.
    library = find_toolchain().compile({"module.c": split.get_source()}, split.options)
    alone = CSourceModule(split.get_source(), split.signatures, constants=split.constants, library=library)
    for module in (split, whole, alone):
        out = np.empty_like(x)
        module.find_function("chain")(x, out)
        np.testing.assert_array_equal(out, compute())


def test_each_kernel_stands_in_one_unit_beside_those_of_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    source = generate(monkeypatch, 6).get_source()
    assert source.startswith("#define BYOC_NUM_UNITS 3\n")
    parts = re.findall(r"#if BYOC_IN_UNIT\((\d)\)\n(.*?)#endif", source, re.DOTALL)
    assert [number for number, _ in parts] == ["0", "0", "1", "2"]
    defined = [re.findall(r"^BYOC_KERNEL void chain_\d_(\w+)\([^;]*\{$", text, re.MULTILINE) for _, text in parts]
    assert defined == [[], ["add", "add"], ["add", "multiply"], ["multiply", "subtract"]]
    assert len(re.findall(r"^BYOC_KERNEL .*;$", source, re.MULTILINE)) == len(OPS)
    assert source == generate(monkeypatch, 6).get_source()


def test_kernels_without_declarations_stay_together(monkeypatch: pytest.MonkeyPatch) -> None:
    source = generate(monkeypatch, 6, TextCodegen).get_source()
    assert list(translation_units(source)) == ["module.c"]


def test_there_are_no_more_units_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csource_units, "MAX_UNITS", 2)
    assert len(translation_units(generate(monkeypatch, 1).get_source())) == 3


@pytest.mark.parametrize("count", ["0", "-1", "x", "", str(MAX_UNITS + 1), "9" * 5000, "\u0663", "02"])
def test_a_first_line_that_is_no_count_makes_no_units(count: str) -> None:
    assert list(translation_units(f"#define BYOC_NUM_UNITS {count}\nint x;\n")) == ["module.c"]


def test_an_error_names_the_line_of_the_one_text(tmp_path: Path) -> None:
    source = "#define BYOC_NUM_UNITS 2\n#if BYOC_UNIT == 1\nint wrong(void) { return missing; }\n#endif\n"
    toolchain = Toolchain(find_toolchain().command, build_cache=BuildCache(tmp_path))
    with pytest.raises(ToolchainError) as caught:
        toolchain.compile(source, BuildOptions())
    assert "module.h, line 3:\n" in str(caught.value)
    assert ">     3 | int wrong(void) { return missing; }" in str(caught.value)
