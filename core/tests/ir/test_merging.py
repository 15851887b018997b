"""Several modules as one program: names, calls, constants, attributes, ops; built, run, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.authoring import GraphCodegen
from byoc_core.backend import BackendInfo, CodegenResult, CompileContext, Support
from byoc_core.backend.hooks import hookimpl
from byoc_core.errors import IRError
from byoc_core.ir import Binding, Function, IRModule, OpDef, OperandSpec, merge_modules, verify
from byoc_core.ops import default_ops
from byoc_core.partitioning import partition
from byoc_core.transform import evaluate_function

ENCODER = R.parse("""
class Encoder:
    @R.function
    def norm(x: R.Tensor(("n", 4), "float32")):
        a = R.multiply(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
        return a

    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        a = norm(x)
        b = R.nn.relu(a)
        return b
""")
DECODER = R.parse("""
class Decoder:
    @R.function
    def norm(x: R.Tensor(("n", 4), "float32")):
        a = R.add(x, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
        return a

    @R.function
    def main(flag: R.Tensor((), "bool"), x: R.Tensor(("n", 4), "float32")):
        @R.region
        def then_region(x: R.Tensor(("n", 4), "float32")):
            y = norm(x)
            return y

        @R.region
        def else_region(x: R.Tensor(("n", 4), "float32")):
            y = R.negative(x)
            return y

        a = R.if_(flag, x, regions=[then_region, else_region])
        return a
""")
X = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
PARAMS = 'x: R.Tensor((2,), "float32")'


def both() -> IRModule:
    return verify(merge_modules({"encoder": ENCODER, "decoder": DECODER}, name="Both"))


def check_results(run: Any) -> None:
    """Check the results of a function running an entry against the separate modules."""
    for key, module, inputs in (
        ("encoder", ENCODER, [X]),
        ("decoder", DECODER, [np.array(True), X]),
        ("decoder", DECODER, [np.array(False), X]),
    ):
        np.testing.assert_array_equal(np.asarray(run(key, inputs)), evaluate_function(module, "main", inputs)[0])


def test_entries_are_named_after_the_keys_and_calls_follow() -> None:
    merged = both()
    assert [*merged.functions] == ["norm", "encoder", "decoder_norm", "decoder"]
    assert [b.attrs["callee"] for f in merged.functions.values() for b in f.walk() if b.op.name == "call"] == [
        "norm",
        "decoder_norm",
    ]
    assert merged.name == "Both"
    assert R.parse(str(merged)) == merged
    check_results(lambda key, inputs: evaluate_function(merged, key, inputs)[0])


def test_constants_are_stored_once_and_not_copied() -> None:
    merged = both()
    assert len(merged.constants) == 1
    (digest,) = merged.constants
    assert merged.constants[digest] is ENCODER.constants[digest]


def test_a_module_under_two_keys() -> None:
    merged = verify(merge_modules({"one": ENCODER, "two": ENCODER}))
    assert [*merged.functions] == ["norm", "one", "two_norm", "two"]
    assert str(ENCODER) == str(merge_modules({"main": ENCODER}, name="Encoder"))


def test_names_that_keys_take() -> None:
    module = R.parse(f"""
class Odd:
    @R.function
    def decoder({PARAMS}):
        y = R.exp(x)
        return y

    @R.function
    def encoder_decoder({PARAMS}):
        y = decoder(x)
        return y

    @R.function
    def main({PARAMS}):
        y = encoder_decoder(x)
        return y
""")
    merged = verify(merge_modules({"encoder": module, "decoder": DECODER}))
    assert [*merged.functions] == ["encoder_decoder", "encoder_encoder_decoder", "encoder", "norm", "decoder"]


def of_functions(*names: str) -> IRModule:
    text = "".join(f"    @R.function\n    def {name}({PARAMS}):\n        return x\n\n" for name in names)
    return R.parse("class Module:\n" + text)


def error_of(modules: Mapping[str, IRModule], **keywords: Any) -> str:
    with pytest.raises(IRError) as caught:
        merge_modules(modules, **keywords)
    return str(caught.value)


def test_the_entry_of_a_module() -> None:
    assert [*merge_modules({"a": of_functions("run")}).functions] == ["a"]
    assert [*merge_modules({"a": of_functions("run", "main")}).functions] == ["run", "a"]
    assert [*merge_modules({"a": of_functions("run", "stop")}, entries={"a": "stop"}).functions] == ["run", "a"]
    assert error_of({"a": of_functions("run", "stop")}) == (
        "module `a`: has several possible entry functions; got run, stop. "
        'Name the entry function: merge_modules(..., entries={"a": ...}).'
    )
    assert error_of({"a": IRModule()}) == "module `a`: has no possible entry functions"
    assert error_of({"a": ENCODER}, entries={"a": "mian"}).startswith("function `mian`: is not in the module")
    assert error_of({"a": ENCODER}, entries={"b": "main"}) == ("entry of `b`: no module has this key; expected a")
    assert error_of({"a b": ENCODER}) == (
        "module 'a b': has a key invalid as a function name; expected a Python identifier"
    )
    assert merge_modules({}) == IRModule()


def test_attributes_are_merged() -> None:
    first, second = ENCODER.with_attrs(version=1, left="l"), DECODER.with_attrs(version=1, right=2)
    assert merge_modules({"a": first, "b": second}).attrs == {"version": 1, "left": "l", "right": 2}
    assert error_of({"a": first, "b": second.with_attrs(version=2)}) == (
        "modules `a` and `b`: have different values of the attribute `version`; got 1 and 2"
    )


def swish() -> OpDef:
    return OpDef("mynpu.swish", (OperandSpec("x"),), infer=lambda context: (context.operands[0],))


def test_registries_are_united() -> None:
    assert both().ops is default_ops()
    op, other = swish(), OpDef("mynpu.other", (OperandSpec("x"),), infer=lambda context: (context.operands[0],))
    left = replace(ENCODER, ops=default_ops().extended([op]))
    right = replace(DECODER, ops=default_ops().extended([other, op]))
    merged = merge_modules({"a": left, "b": right})
    assert merged.knows(op)
    assert merged.knows(other)
    assert len(merged.ops) == len(default_ops()) + 2
    clash = replace(DECODER, ops=default_ops().extended([swish()]))
    assert error_of({"a": left, "b": clash}) == "op `mynpu.swish`: has different definitions in the modules `a` and `b`"


@pytest.mark.parametrize("backends", [[], ["ccompiler"]], ids=["host", "ccompiler"])
def test_both_entries_run_saved_or_not(backends: list[str], tmp_path: Path) -> None:
    for name in backends:
        if name not in byoc_core.backends.names() or not byoc_core.backends.get(name).compile_status().ok:
            pytest.skip(f"no backend {name} here")
    executable = byoc_core.build(both(), backends)
    first = byoc_core.VirtualMachine(executable)
    check_results(lambda key, inputs: first[key](*inputs))
    executable.save(tmp_path / "both.byoc")
    machine = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "both.byoc", allow_native=True))
    assert {"encoder", "decoder"} <= set(machine.functions)
    check_results(lambda key, inputs: machine[key](*inputs))


class TakesAll:
    """A backend claiming every op and running the reference kernels."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("toy", dynamic_shapes=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support:
        return Support()

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        return GraphCodegen().compile(functions, context)


def test_modules_that_are_partitioned_already() -> None:
    parts = {key: partition(module, [TakesAll()]) for key, module in {"a": ENCODER, "b": ENCODER}.items()}
    merged = verify(merge_modules(parts))
    symbols = [f.attrs["global_symbol"] for f in merged.functions.values() if "global_symbol" in f.attrs]
    assert len(symbols) == len(set(symbols)) == 4
    sources = {f.attrs["source"] for f in merged.functions.values() if "source" in f.attrs}
    assert sources == {"norm", "a", "b_norm", "b"}
    check = byoc_core.VirtualMachine(byoc_core.build(merged, [TakesAll()]))
    for key in ("a", "b"):
        np.testing.assert_array_equal(np.asarray(check[key](X)), evaluate_function(ENCODER, "main", [X])[0])


class External:
    """A stand-in for a compiled module."""

    function_names = ("f",)


def test_compiled_functions_of_one_symbol() -> None:
    compiled = ENCODER.with_attrs(external_mods=(External(),), external_functions={"f": ENCODER["main"]})
    merged = merge_modules({"a": compiled, "b": DECODER})
    assert merged.attrs["external_mods"] == compiled.attrs["external_mods"]
    assert merged.attrs["external_functions"] == {"f": ENCODER["main"]}
    assert error_of({"a": compiled, "b": compiled}) == (
        "module `b`: has a compiled function with the symbol `f` of another module"
    )
