"""Bad functions: each gives a single clear error naming the call and the place."""

from __future__ import annotations

import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from onnx import parser


def _refuse(model: str) -> str:
    text = '<ir_version: 10, opset_import: ["" : 17, "local" : 1]> ' + model
    with pytest.raises(FrontendError) as caught:
        from_onnx(parser.parse_model(text))
    assert type(caught.value) is FrontendError
    return str(caught.value)


def test_functions_do_not_call_themselves() -> None:
    head = '<domain: "local", opset_import: ["" : 17, "local" : 1]>'
    functions = f"{head} F (u) => (v) {{ w = local.G(u) v = Neg(w) }} {head} G (u) => (v) {{ v = local.F(u) }}"
    assert _refuse(f"g (float[4] x) => (y) {{ y = local.F(x) }} {functions}") == (
        "ONNX model, node `y` (F), node `w` (G), node `v` (F): calls a recursive function; got F -> G -> F"
    )


def test_functions_are_not_nested_without_end() -> None:
    head = '<domain: "local", opset_import: ["" : 17, "local" : 1]>'
    calls = [f"{head} F{index} (u) => (v) {{ v = local.F{index + 1}(u) }}" for index in range(70)]
    functions = " ".join([*calls, f"{head} F70 (u) => (v) {{ v = Neg(u) }}"])
    assert _refuse(f"g (float[4] x) => (y) {{ y = local.F0(x) }} {functions}") == (
        "ONNX model: graphs and function calls are nested too deeply; expected at most 64 levels. "
        "Inline the functions, for instance with onnx.inliner.inline_local_functions."
    )


@pytest.mark.parametrize(
    ("call", "body", "expected"),
    [
        ("y = local.F(x, x)", "v = Neg(u)", "has more inputs than the called function; got 2, expected 1"),
        ("y, z = local.F(x)", "v = Neg(u)", "has more outputs than the called function; got 2, expected 1"),
        ("y = local.F<beta = 1>(x)", "v = Neg(u)", "has unsupported attributes; got beta"),
        (
            "y = local.F(x)",
            "v = Neg(t)",
            "node `v` (Neg): reads undefined value `t`: no input, initializer or node output has this name",
        ),
        (
            "y = local.F<axis = 5>(x)",
            "v = Softmax<axis : int = @axis>(u)",
            "node `v` (Softmax): names no axis of a tensor of rank 1; got 5",
        ),
    ],
)
def test_bad_functions(call: str, body: str, expected: str) -> None:
    function = f'<domain: "local", opset_import: ["" : 17]> F<axis>(u) => (v) {{ {body} }}'
    text = _refuse(f"g (float[4] x) => (y) {{ {call} }} {function}")
    separator = ", " if expected.startswith("node") else ": "
    assert text == f"ONNX model, node `y` (F){separator}{expected}"


def test_a_function_of_an_old_operator_set() -> None:
    function = '<domain: "local", opset_import: ["" : 6]> F (u) => (v) { v = Neg(u) }'
    assert _refuse(f"g (float[4] x) => (y) {{ y = local.F(x) }} {function}") == (
        "ONNX model, node `y` (F): needs an unsupported version of the ONNX operator set; got 6, expected 7 to 28. "
        "Convert the model with onnx.version_converter."
    )


def test_a_function_that_stands_there_twice() -> None:
    function = '<domain: "local", opset_import: ["" : 17]> F (u) => (v) { v = Neg(u) }'
    assert _refuse(f"g (float[4] x) => (y) {{ y = local.F(x) }} {function} {function}") == (
        "ONNX model, function `F`: is defined twice"
    )


def test_an_op_that_the_standard_defined_by_others_later_only() -> None:
    text = parser.parse_model('<ir_version: 10, opset_import: ["" : 27]> g (float[4] x) => (y) { y = SwiGLU(x, x) }')
    with pytest.raises(FrontendError) as caught:
        from_onnx(text)
    assert str(caught.value).startswith("ONNX model: 1 of 1 nodes have unsupported ops; got SwiGLU (1x). ")


def test_an_error_inside_a_function_of_the_standard() -> None:
    text = '<ir_version: 10, opset_import: ["" : 28]> g (float[4] x, float[3] z) => (y) { y = SwiGLU(x, z) }'
    with pytest.raises(FrontendError) as caught:
        from_onnx(parser.parse_model(text))
    assert str(caught.value) == (
        "ONNX model, node `y` (SwiGLU), node `Y` (Mul): op `multiply`, operand `y=z`: axis 0 has size 3 and does not "
        "broadcast with size 4; got (3,), expected a shape broadcasting with (4,)"
    )


def test_a_function_that_the_package_cannot_make_is_an_error_of_the_node() -> None:
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["a"], ["b"])],
        "body",
        [onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [2])],
        [onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2])],
    )
    node = onnx.helper.make_node("SequenceMap", ["", "x"], ["y"], name="map", body=body)
    tensors = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    sequence = onnx.helper.make_sequence_type_proto(tensors)
    values = [onnx.helper.make_value_info(name, sequence) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    with pytest.raises(FrontendError, match=r"`map` \(SequenceMap\): the package onnx cannot make .* function"):
        from_onnx(model)


def test_numbers_at_run_time_are_few() -> None:
    sizes = [("x", onnx.TensorProto.FLOAT, [1, 5, 5]), ("i", onnx.TensorProto.INT64, [1 << 30])]
    inputs = [onnx.helper.make_tensor_value_info(*each) for each in (*sizes, ("b", onnx.TensorProto.INT64, [2]))]
    node = onnx.helper.make_node("Col2Im", ["x", "i", "b"], ["y"], name="fold")
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", inputs, outputs), opset_imports=[onnx.helper.make_opsetid("", 18)]
    )
    with pytest.raises(FrontendError, match=r"`fold` .*: too many numbers are known only at run time; got 1073741824"):
        from_onnx(model)
