"""The registry of ops of a module."""

from __future__ import annotations

from dataclasses import replace

import pytest
from byoc_core import script as R
from byoc_core.ir import FunctionBuilder, IRModule, OpDef, OperandSpec, parse_module, tensor
from byoc_core.ir.snapshot import Snapshot
from byoc_core.ops import default_ops
from byoc_core.transform import RemoveDeadCode, UniqueNames

from core.tests.fresh_process import answer_of

SWISH = OpDef("mynpu.swish", (OperandSpec("x"),), infer=lambda context: (context.operands[0],))
OPS = default_ops().extended([SWISH])
TEXT = """
def main(x: R.Tensor((2,), "float32")):
    y = R.mynpu.swish(x)
    return y
"""


def test_the_default_is_the_core_s_registry() -> None:
    assert IRModule().ops is default_ops()
    assert R.parse("def main(x: R.Tensor((2,))):\n    return x\n").ops is default_ops()
    assert FunctionBuilder().ops is default_ops()


def test_making_modules_loads_no_ops() -> None:
    script = (
        "import json, sys\nfrom byoc_core.ir import IRModule\nmodule = IRModule().with_functions({})\n"
        "before = 'byoc_core.opset.families.elementwise' in sys.modules\n'add' in module.ops\n"
        "print(json.dumps([before, 'byoc_core.opset.families.elementwise' in sys.modules]))"
    )
    assert answer_of(script) == [False, True]


def test_a_registry_travels() -> None:
    module = R.parse(TEXT, ops=OPS)
    assert module.ops is OPS
    assert parse_module(TEXT, OPS).ops is OPS
    derived = [
        replace(module, name="Other"),
        module.with_attrs(version=1),
        module.with_function(replace(module["main"], name="other")),
        module.with_functions({}),
        UniqueNames()(module),
        RemoveDeadCode()(module),
    ]
    assert all(item.ops is OPS for item in derived)


def test_a_builder_has_the_registry_of_its_module() -> None:
    builder = FunctionBuilder("main", ops=OPS)
    x = builder.param("x", tensor((2,)))
    function = builder.finish(builder.bind("mynpu.swish", [x], {}).result)
    assert IRModule({"main": function}, builder.constants, ops=builder.ops).ops is OPS


def test_an_imported_model_has_the_registry_that_it_was_imported_with() -> None:
    onnx = pytest.importorskip("onnx")
    from byoc_core import from_onnx

    value = onnx.helper.make_tensor_value_info("x", 1, [2])
    result = onnx.helper.make_tensor_value_info("y", 1, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [result])
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    assert from_onnx(model, ops=OPS).ops is OPS
    assert from_onnx(model).ops is default_ops()


def test_a_registry_is_no_part_of_what_a_module_says() -> None:
    module = R.parse("def main(x: R.Tensor((2,))):\n    y = R.exp(x)\n    return y\n")
    other = replace(module, ops=OPS)
    assert other == module
    assert hash(other) == hash(module)
    assert str(other) == str(module)
    assert "ops" not in repr(other)


def test_a_module_knows_the_ops_of_its_registry_by_object() -> None:
    module = IRModule(ops=OPS)
    assert module.knows(SWISH)
    assert module.knows(default_ops()["add"])
    assert not IRModule().knows(SWISH)
    assert not module.knows(replace_op("mynpu.swish"))
    assert not module.knows(replace_op("add"))


def replace_op(name: str) -> OpDef:
    return OpDef(name, (OperandSpec("x"),), infer=lambda context: (context.operands[0],))


def test_a_registry_that_is_replaced_in_place_is_noticed() -> None:
    module = IRModule()
    snapshot = Snapshot(module)
    assert snapshot.is_current()
    object.__setattr__(module, "ops", OPS)
    assert not snapshot.is_current()
