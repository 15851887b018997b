"""Operators registered by a script, and the advice for operators without importer."""

from __future__ import annotations

import contextvars
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import ArtifactError, FrontendError, IRError, OptionsError, PluginError, UnsupportedOpsError
from byoc_core.frontend.importers import importers
from byoc_core.frontend.onnx import NodeContext, from_onnx
from byoc_core.ir import IRModule
from byoc_core.ops import default_ops
from byoc_core.opset import (
    AttrKind,
    AttrSpec,
    OnnxSpelling,
    OpDef,
    OperandSpec,
)
from onnx import TensorProto, helper, parser

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

Array = npt.NDArray[Any]
X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(autouse=True)
def _fresh_registry(look_again: Callable[[], None]) -> None:
    """Give each test a registry without registrations."""
    look_again()


def make_model(
    *nodes: onnx.NodeProto, outputs: Sequence[str] = ("y",), versions: Sequence[tuple[str, int]] = ()
) -> onnx.ModelProto:
    """Return a model of the input ``x``, float32 of shape ``("n", 4)``."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs])
    domains = {node.domain: 1 for node in nodes if node.domain} | dict(versions)
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(*item) for item in domains.items())]
    return helper.make_model(graph, opset_imports=opsets)


def make_node(
    op_type: str = "Scale",
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = ("y",),
    domain: str = "com.example",
    **attrs: Any,
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, name="the_node", domain=domain, **attrs)


def run(module: IRModule, *inputs: Array, backends: Sequence[str] = ()) -> Any:
    return byoc_core.VirtualMachine(byoc_core.build(module, backends))["main"](*inputs)


def make_scale(factor: float = 2.0, name: str = "example.scale", **facts: Any) -> OpDef:
    def kernel(x: Array, offset: float) -> Array:
        return x * np.float32(factor) + np.float32(offset)

    attrs = (AttrSpec("offset", AttrKind.FLOAT, 0.0),)
    return OpDef(name, (OperandSpec("x"),), infer=lambda c: (c.tensor(0),), attrs=attrs, kernel=kernel, **facts)


def import_scale(node: NodeContext) -> Any:
    return [node.emit("multiply", node.value(0), node.scalar(node.attr_float("factor", 1.0), 0))]


# Importers


def test_a_function_imports_the_nodes_of_an_operator() -> None:
    assert byoc_core.register_op("com.example", "Scale", import_scale) is import_scale
    module = from_onnx(make_model(make_node(factor=3.0)))
    assert [binding.op.name for binding in module["main"].bindings] == ["multiply"]
    assert module.ops is default_ops()
    np.testing.assert_array_equal(run(module, X), 3 * X)


def test_a_decorated_function_may_return_a_single_output() -> None:
    @byoc_core.register_op("com.example", "Scale")
    def import_double(node: NodeContext) -> Any:
        return node.emit("add", node.value(0), node.value(0))

    assert import_double.__name__ == "import_double"
    np.testing.assert_array_equal(run(from_onnx(make_model(make_node())), X), 2 * X)


def test_an_importer_reads_domain_and_version() -> None:
    seen = []

    @byoc_core.register_op("com.example", "Scale")
    def import_node(node: NodeContext) -> Any:
        seen.append((node.domain, node.domain_version, node.opset))
        return node.value(0)

    from_onnx(make_model(make_node(), versions=[("com.example", 3)]))
    function = '<domain: "local", opset_import: ["" : 16, "com.example" : 2]> F (u) => (v) { v = com.example.Scale(u) }'
    imports = 'opset_import: ["" : 17, "com.example" : 5, "local" : 1]'
    calls = "h = local.F(x) y = com.example.Scale(h)"
    from_onnx(parser.parse_model(f"<ir_version: 10, {imports}> g (float[4] x) => (y) {{ {calls} }} {function}"))
    assert seen == [("com.example", 3, 17), ("com.example", 2, 16), ("com.example", 5, 17)]


def test_a_domain_with_several_versions() -> None:
    byoc_core.register_op("com.example", "Scale", lambda node: [node.value(0)] * node.domain_version)
    model = make_model(make_node())
    model.opset_import.add(domain="com.example", version=2)
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == (
        "ONNX model, node `the_node` (Scale): several versions of the domain `com.example` are declared; got [1, 2]"
    )


def test_an_operator_in_a_nested_graph_and_in_a_function() -> None:
    byoc_core.register_op("com.example", "Scale", import_scale)
    function = '<domain: "local", opset_import: ["" : 17]> F (u) => (v) { v = com.example.Scale<factor = 3.0>(u) }'
    branches = """then_branch = t () => (a) { a = com.example.Scale<factor = 2.0>(x) },
        else_branch = e () => (b) { b = local.F(x) }"""
    text = f"g (bool c, float[n, 4] x) => (y) {{ y = If(c) <{branches}> }} {function}"
    imports = 'opset_import: ["" : 17, "com.example" : 1, "local" : 1]'
    module = from_onnx(parser.parse_model(f"<ir_version: 10, {imports}> {text}"))
    for condition, factor in ((True, 2), (False, 3)):
        np.testing.assert_array_equal(run(module, np.array(condition), X), factor * X)


def test_an_operator_in_a_graph_of_a_foreign_node() -> None:
    """The inner operator is found after the importer of the outer operator."""
    inner = helper.make_graph([make_node(outputs=["z"], factor=5.0)], "inner", [], [onnx.ValueInfoProto(name="z")])
    model = make_model(make_node("Apply", [], ["y"], body=inner))
    with pytest.raises(UnsupportedOpsError, match=r"^ONNX model: 1 of 1 nodes .* got com\.example\.Apply \(1x\)"):
        from_onnx(model)
    byoc_core.register_op("com.example", "Apply", lambda node: node.inline("body", []))
    with pytest.raises(UnsupportedOpsError, match=r"^ONNX model: 1 of 2 nodes .* got com\.example\.Scale \(1x\)"):
        from_onnx(model)
    byoc_core.register_op("com.example", "Scale", import_scale)
    np.testing.assert_array_equal(run(from_onnx(model), X), 5 * X)


def test_a_model_s_own_function_comes_first() -> None:
    byoc_core.register_op("local", "F", import_scale)
    function = '<domain: "local", opset_import: ["" : 17]> F (u) => (v) { v = Neg(u) }'
    imports = 'opset_import: ["" : 17, "local" : 1]'
    text = f"<ir_version: 10, {imports}> g (float[n, 4] x) => (y) {{ y = local.F(x) }} {function}"
    np.testing.assert_array_equal(run(from_onnx(parser.parse_model(text)), X), -X)


def test_exceptions_of_an_importer_reach_the_caller_with_a_note() -> None:
    @byoc_core.register_op("com.example", "Scale")
    def import_node(node: NodeContext) -> Any:
        return dict[str, str]()[node.op_type]

    with pytest.raises(KeyError) as caught:
        from_onnx(make_model(make_node()))
    note = "raised by the importer of `register_op` of `com.example.Scale` for ONNX model, node `the_node` (Scale)"
    assert caught.value.__notes__ == [note]


@pytest.mark.parametrize(
    ("result", "got"),
    [(None, "a value of the type NoneType"), ("y", "a value of the type str"), ([1.0], "an output of the type float")],
)
def test_results_of_another_type(result: object, got: str) -> None:
    byoc_core.register_op("com.example", "Scale", lambda node: result)
    with pytest.raises(FrontendError) as caught:
        from_onnx(make_model(make_node()))
    assert str(caught.value) == (
        f"ONNX model, node `the_node` (Scale): the importer of `register_op` of `com.example.Scale` returned {got}; "
        "expected a sequence with the imported form of each output"
    )


def test_unread_attributes_and_missing_outputs_are_errors() -> None:
    byoc_core.register_op("com.example", "Scale", lambda node: node.value(0))
    with pytest.raises(FrontendError, match="has unsupported attributes; got factor"):
        from_onnx(make_model(make_node(factor=1.0)))
    with pytest.raises(FrontendError, match="output `z` is not supported, but the model uses the output"):
        from_onnx(make_model(make_node(outputs=["y", "z"]), outputs=["y", "z"]))


# Ops


def test_an_op_is_imported_run_saved_and_loaded(tmp_path: Path) -> None:
    byoc_core.register_op("com.example", "Scale", op=make_scale())
    model = make_model(
        helper.make_node("Relu", ["x"], ["a"]), make_node("Scale", ["a"], ["b"], offset=1.0), make_node(inputs=["b"])
    )
    module = from_onnx(model)
    assert [binding.op.name for binding in module["main"].bindings] == ["nn.relu", "example.scale", "example.scale"]
    assert module.ops.keys() - default_ops().keys() == {"example.scale"}
    assert byoc_core.parse(str(module), ops=module.ops) == module
    executable = byoc_core.build(module, [])
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](X), 4 * X + 2)
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    np.testing.assert_array_equal(byoc_core.VirtualMachine(loaded)["main"](X), 4 * X + 2)
    loaded.save(tmp_path / "again.byoc")
    assert (tmp_path / "again.byoc").read_bytes() == (tmp_path / "model.byoc").read_bytes()


def test_a_backend_compiles_the_ops_around() -> None:
    if "ccompiler" not in byoc_core.backends.names() or not byoc_core.backends.get("ccompiler").compile_status().ok:
        pytest.skip("no backend ccompiler here")
    byoc_core.register_op("com.example", "Scale", op=make_scale())
    executable = byoc_core.build(
        from_onnx(make_model(make_node(outputs=["a"]), helper.make_node("Exp", ["a"], ["y"]))), ["ccompiler"]
    )
    outcomes = {op["op"]: op["outcome"] for op in executable.report_data["ops"]}
    assert outcomes == {"example.scale": "host", "exp": "ccompiler"}
    np.testing.assert_allclose(byoc_core.VirtualMachine(executable)["main"](X), np.exp(2 * X), rtol=1e-5)


SCRIPT = """
import sys
import numpy as np
import byoc_core
from byoc_core.opset import AttrKind, AttrSpec, OpDef, OperandSpec

try:
    byoc_core.load(sys.argv[1])
except byoc_core.errors.ArtifactError as error:
    print(error)
byoc_core.verify(sys.argv[1])
op = OpDef(
    "example.scale",
    (OperandSpec("x"),),
    infer=lambda c: (c.tensor(0),),
    attrs=(AttrSpec("offset", AttrKind.FLOAT, 0.0),),
    kernel=lambda x, offset: x * np.float32(7),
)
byoc_core.register_op("com.example", "Scale", op=op)
x = np.ones((1, 4), np.float32)
print(byoc_core.VirtualMachine(byoc_core.load(sys.argv[1]))["main"](x).tolist())
assert "onnx" not in sys.modules
"""


def test_another_process_registers_the_op_before_loading(tmp_path: Path) -> None:
    byoc_core.register_op("com.example", "Scale", op=make_scale())
    byoc_core.build(from_onnx(make_model(make_node())), []).save(tmp_path / "model.byoc")
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "model.byoc")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        (
            "graph document: needs a kernel of op `example.scale`, registered by the program that saved the artifact. "
            "Call `byoc_core.register_op(domain, op_type, op=...)` with the op before loading."
        ),
        "[[7.0, 7.0, 7.0, 7.0]]",
    ]


def test_an_artifact_names_no_registered_kernel_for_an_op_of_the_core(tmp_path: Path) -> None:
    byoc_core.register_op("com.example", "Positive", op=default_ops()["nn.relu"])
    module = from_onnx(make_model(make_node("Positive")))
    assert module.ops is default_ops()
    byoc_core.build(module, []).save(tmp_path / "model.byoc")
    look = "import sys, byoc_core\nbyoc_core.load(sys.argv[1])"
    subprocess.run([sys.executable, "-c", look, str(tmp_path / "model.byoc")], check=True)


ATTRIBUTES: dict[AttrKind, tuple[object, object]] = {
    AttrKind.BOOL: (1, True),
    AttrKind.INT: (7, 7),
    AttrKind.FLOAT: (0.5, 0.5),
    AttrKind.STR: ("text", "text"),
    AttrKind.DTYPE: (TensorProto.INT8, "int8"),
    AttrKind.INTS: ([1, 2], (1, 2)),
    AttrKind.FLOATS: ([0.5, 1.5], (0.5, 1.5)),
    AttrKind.STRS: (["a", "b"], ("a", "b")),
    AttrKind.DIM: (3, 3),
    AttrKind.DIMS: ([3, 4], (3, 4)),
}


def make_attributed(*specs: AttrSpec) -> OpDef:
    return OpDef("example.scale", (OperandSpec("x"),), infer=lambda c: (c.tensor(0),), attrs=specs)


@pytest.mark.parametrize("kind", AttrKind)
def test_attributes_are_read_by_kind(kind: AttrKind) -> None:
    stated, stored = ATTRIBUTES[kind]
    byoc_core.register_op("com.example", "Scale", op=make_attributed(AttrSpec("a", kind)))
    (binding,) = from_onnx(make_model(make_node(a=stated)))["main"].bindings
    assert dict(binding.attrs) == {"a": stored}
    with pytest.raises(FrontendError, match=r"^ONNX model, node `the_node` \(Scale\): lacks attribute `a`$"):
        from_onnx(make_model(make_node()))
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [1.0])
    with pytest.raises(FrontendError, match=r"attribute `a` has the wrong type; got tensor, expected"):
        from_onnx(make_model(make_node(a=tensor)))


def test_attributes_of_the_op_have_defaults_and_choices() -> None:
    specs = (AttrSpec("mode", AttrKind.STR, "one", choices=("one", "two")), AttrSpec("axis", AttrKind.INT, None))
    byoc_core.register_op("com.example", "Scale", op=make_attributed(*specs))
    (binding,) = from_onnx(make_model(make_node()))["main"].bindings
    assert dict(binding.attrs) == {"mode": "one", "axis": None}
    with pytest.raises(FrontendError, match="attribute `mode`: value not permitted; got 'six', expected 'one' or"):
        from_onnx(make_model(make_node(mode="six")))
    with pytest.raises(FrontendError, match="has unsupported attributes; got other"):
        from_onnx(make_model(make_node(other=1)))


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (99, "ONNX model, node `the_node` (Scale), attribute `to`: has an unsupported element type; got number 99"),
        ("float99", "ONNX model, node `the_node` (Scale): dtype: unknown dtype 'float99'"),
    ],
)
def test_a_dtype_by_number_or_by_name(value: int | str, error: str) -> None:
    byoc_core.register_op("com.example", "Scale", op=make_attributed(AttrSpec("to", AttrKind.DTYPE)))
    (binding,) = from_onnx(make_model(make_node(to="bfloat16")))["main"].bindings
    assert binding.attrs["to"] == "bfloat16"
    with pytest.raises(FrontendError) as caught:
        from_onnx(make_model(make_node(to=value)))
    assert str(caught.value).startswith(error)


def test_operands_that_do_not_fit() -> None:
    byoc_core.register_op("com.example", "Scale", op=make_scale())
    with pytest.raises(FrontendError) as caught:
        from_onnx(make_model(make_node(inputs=["x", "x"])))
    assert str(caught.value) == ("ONNX model, node `the_node` (Scale): op `example.scale`: takes 1 operands (x); got 2")


def test_an_op_with_a_size_known_after_the_run() -> None:
    byoc_core.register_op("com.example", "Positions", op=default_ops()["nonzero"])
    module = from_onnx(make_model(make_node("Positions")))
    np.testing.assert_array_equal(run(module, X), np.stack(np.nonzero(X)))


def test_an_op_with_regions_needs_an_importer() -> None:
    op = next(op for op in default_ops().values() if op.num_regions)
    byoc_core.register_op("com.example", "Scale", op=op)
    with pytest.raises(FrontendError) as caught:
        from_onnx(make_model(make_node()))
    assert str(caught.value) == (
        f"ONNX model, node `the_node` (Scale): op `{op.name}` has regions or declared results, so the operator needs "
        "an importer"
    )


def test_an_importer_with_an_op() -> None:
    @byoc_core.register_op("com.example", "Scale", op=make_scale())
    def import_node(node: NodeContext) -> Any:
        return node.emit("example.scale", node.emit("negative", node.value(0)), offset=node.attr_float("shift"))

    np.testing.assert_array_equal(run(from_onnx(make_model(make_node(shift=1.0))), X), -2 * X + 1)


# Registrations


def test_the_last_registration_counts_and_earlier_modules_keep_their_op(tmp_path: Path) -> None:
    def run_cell(factor: float) -> IRModule:
        byoc_core.register_op("com.example", "Scale", op=make_scale(factor))
        return from_onnx(make_model(make_node()))

    run_cell(2.0)
    earlier = run_cell(2.0)
    later = run_cell(3.0)
    np.testing.assert_array_equal(run(earlier, X), 2 * X)
    np.testing.assert_array_equal(run(later, X), 3 * X)
    byoc_core.build(later, []).save(tmp_path / "later.byoc")
    with pytest.raises(PluginError) as caught:  # a load would find the later kernel
        byoc_core.build(earlier, []).save(tmp_path / "earlier.byoc")
    assert str(caught.value) == (
        "op `example.scale`: no installed runtime has the kernel: a saved module could not be loaded. Provide the "
        "kernel by the hook `byoc_kernels` of an entry point in the group `byoc.runtimes`, or register the op of the "
        "module by `byoc_core.register_op(domain, op_type, op=...)` before the build."
    )


def test_the_argument_ops_comes_before_a_registration() -> None:
    byoc_core.register_op("com.example", "Scale", import_scale)
    spelled = make_scale(9.0, "mine.scale", onnx=OnnxSpelling("Scale", domain="com.example"))
    module = from_onnx(make_model(make_node()), ops=default_ops().extended([spelled]))
    np.testing.assert_array_equal(run(module, X), 9 * X)


def test_ops_of_one_name() -> None:
    byoc_core.register_op("com.example", "Scale", op=make_scale(2.0))
    byoc_core.register_op("com.example", "Other", op=make_scale(3.0))
    from_onnx(make_model(make_node()))
    with pytest.raises(IRError) as caught:
        from_onnx(make_model(make_node(outputs=["a"]), make_node("Other", ["a"])))
    assert str(caught.value) == (
        "op `example.scale`: has different definitions in `register_op` of `com.example.Other` and `register_op` of "
        "`com.example.Scale`"
    )
    with pytest.raises(IRError) as caught:
        from_onnx(make_model(make_node()), ops=default_ops().extended([make_scale(4.0)]))
    assert str(caught.value) == (
        "op `example.scale`: has different definitions in the registry of the import and `register_op` of "
        "`com.example.Scale`"
    )


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_an_operator_with_an_importer_in_the_core(domain: str) -> None:
    with pytest.raises(FrontendError) as caught:
        byoc_core.register_op(domain, "Softmax", import_scale)
    assert str(caught.value) == (
        "register_op: operator `Softmax` has an importer in byoc-core. Give the operator a domain of your own, in the "
        "model too."
    )
    assert importers().find_registered(("", "Softmax")) is None


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
def test_operators_of_the_standard_domain_may_be_added(domain: str) -> None:
    """A name in no version of the standard, and an operator not importable in this operator set."""
    byoc_core.register_op(domain, "Scale", import_scale)
    np.testing.assert_array_equal(run(from_onnx(make_model(make_node(domain="", factor=2.0))), X), 2 * X)
    byoc_core.register_op(domain, "SwiGLU", lambda node: node.value(1))
    text = '<ir_version: 10, opset_import: ["" : {}]> g (float[4] x, float[4] z) => (y) {{ y = SwiGLU(x, z) }}'
    assert not from_onnx(parser.parse_model(text.format(27)))["main"].bindings
    assert from_onnx(parser.parse_model(text.format(28)))["main"].bindings  # by the function of the standard


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, "Scale", import_scale), "register_op, `domain`: is not text; got int"),
        (("d", None, import_scale), "register_op, `op_type`: is not text; got NoneType"),
        (("d", "", import_scale), "register_op, `op_type`: is empty"),
        (("d", "Scale", 3), "register_op, `importer`: is not a function; got int"),
    ],
)
def test_arguments_of_another_type(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(OptionsError) as caught:
        byoc_core.register_op(*arguments)
    assert str(caught.value) == message


def test_an_op_of_another_type_or_with_a_name_of_the_core() -> None:
    with pytest.raises(OptionsError) as wrong:
        byoc_core.register_op("d", "Scale", op="add")  # type: ignore[call-overload]
    assert str(wrong.value) == "register_op, `op`: is not an op; got str, expected OpDef"
    with pytest.raises(IRError) as caught:
        byoc_core.register_op("d", "Scale", op=make_scale(name="add"))
    assert str(caught.value) == "op `add`: has the name of another op of the core. Rename the op."


def test_registrations_in_many_threads() -> None:
    """Each registration is complete: the registered kernel belongs to the registered op."""
    factors = range(1, 9)

    def register_many(factor: int) -> None:
        for _ in range(20):
            byoc_core.register_op("com.example", f"Scale{factor}", op=make_scale(factor, f"example.scale{factor}"))
            byoc_core.register_op("com.example", "Scale", op=make_scale(factor))

    with ThreadPoolExecutor(8) as pool:
        contexts = [contextvars.copy_context() for _ in factors]
        list(pool.map(lambda context, factor: context.run(register_many, factor), contexts, factors))
    for factor in factors:
        np.testing.assert_array_equal(run(from_onnx(make_model(make_node(f"Scale{factor}"))), X), factor * X)
    module = from_onnx(make_model(make_node()))
    assert byoc_core.build(module, []).modules[0].needed_runtimes == ("graph",)


def test_a_kernel_missing_in_this_process(tmp_path: Path, look_again: Callable[[], None]) -> None:
    byoc_core.register_op("com.example", "Scale", op=make_scale())
    byoc_core.build(from_onnx(make_model(make_node())), []).save(tmp_path / "model.byoc")
    look_again()
    with pytest.raises(ArtifactError, match=r"needs a kernel of op `example\.scale`, registered by"):
        byoc_core.load(tmp_path / "model.byoc")


# Advice


def refusal(model: onnx.ModelProto) -> UnsupportedOpsError:
    with pytest.raises(UnsupportedOpsError) as caught:
        from_onnx(model)
    return caught.value


def test_the_error_lists_the_operators_and_shows_code() -> None:
    nodes = [
        make_node("Scale", ["x"], ["a"], factor=2.0),
        make_node("Scale", ["a"], ["b"], kind="wide"),
        make_node("Other", ["b"], ["y"], domain="org.other"),
    ]
    assert str(refusal(make_model(*nodes))) == (
        "ONNX model: 3 of 3 nodes have unsupported ops; got com.example.Scale (2x), org.other.Other (1x). "
        "To import `com.example.Scale`, run this code before `from_onnx`, with the outputs of the node in the last "
        "line:\n"
        "import byoc_core\n"
        "\n"
        "@byoc_core.register_op('com.example', 'Scale')\n"
        "def import_node(node):\n"
        "    node.ignore_attrs('factor', 'kind')  # read each instead: node.attr_float(name)\n"
        "    return [node.value(0)] * node.num_outputs  # stands for the outputs: node.emit(op, node.value(0))"
    )


@pytest.mark.parametrize(
    ("domain", "is_common"), [("ai.onnx.ml", True), ("com.microsoft", True), ("com.example", False)]
)
def test_the_page_of_packages_is_named_for_common_domains(domain: str, is_common: bool) -> None:
    advice = f"import operators of the domain `{domain}`: the page docs/foreign-operators.md lists packages. "
    assert (advice in str(refusal(make_model(make_node("NotInAnyPackage", domain=domain))))) is is_common


@pytest.mark.parametrize(
    ("domain", "op_type"),
    [
        ("com.example", "Scale"),
        ("", "NotInTheStandard"),
        ("com.microsoft", "NotInAnyPackage"),
        ('it\'s "quoted"', "new\nline'); raise SystemExit('"),
        ("домен", "Масштаб\u202e"),
    ],
)
@pytest.mark.parametrize("outputs", [["y"], ["y", "z"]])
@pytest.mark.parametrize("attrs", [{}, {"factor": 2.0, "mode": "a"}])
def test_the_code_of_the_error_works(domain: str, op_type: str, outputs: list[str], attrs: dict[str, object]) -> None:
    model = make_model(make_node(op_type, ["x"], outputs, domain, **attrs), outputs=outputs)
    code = refusal(model).detail
    assert code is not None
    assert code.isascii()
    assert len(code.splitlines()) <= 10
    exec(code, {})
    results = run(from_onnx(model), X)
    for result in results if len(outputs) > 1 else [results]:
        np.testing.assert_array_equal(result, X)
