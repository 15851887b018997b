"""Complex numbers: moved by all ops that move elements, stored, printed, and refused by arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import script as R
from byoc_core.dtypes import DLCode, dtype_info
from byoc_core.errors import CodegenError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

DTYPES = {"complex64": TensorProto.COMPLEX64, "complex128": TensorProto.COMPLEX128}
NODES: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
    ("Transpose", ["x"], {"perm": [1, 0]}),
    ("Concat", ["x", "w"], {"axis": 0}),
    ("Gather", ["w", "indices"], {}),
    ("Reshape", ["x", "shape"], {}),
    ("Where", ["chosen", "x", "w"], {}),
    ("Pad", ["x", "pads"], {}),
    ("Expand", ["x", "sizes"], {}),
    ("Slice", ["x", "indices", "ends"], {}),
    ("Tile", ["x", "sizes2"], {}),
    ("Squeeze", ["y5"], {}),
)
INTEGERS = {
    "indices": [0, 0],
    "shape": [-1],
    "pads": [1, 0, 0, 1],
    "sizes": [2, 3, 2],
    "ends": [1, 1],
    "sizes2": [1, 2],
}


def _model(dtype: str) -> onnx.ModelProto:
    type_ = DTYPES[dtype]
    weight = (np.arange(6) * 1j + 0.5).astype(dtype).reshape(3, 2)
    stored = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.array([True, False]), "chosen")]
    stored += [numpy_helper.from_array(np.array(numbers), name) for name, numbers in INTEGERS.items()]
    nodes = [helper.make_node(op, given, [f"y{i}"], **attrs) for i, (op, given, attrs) in enumerate(NODES)]
    outputs = [helper.make_tensor_value_info(f"y{i}", type_, None) for i in range(len(NODES))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", type_, ["n", 2])], outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_complex_numbers_are_moved(dtype: str, tmp_path: Path) -> None:
    model = _model(dtype)
    x = (np.random.default_rng(0).random((3, 2)) + 2j).astype(dtype)
    byoc_core.build(from_onnx(model), []).save(tmp_path / "model.byoc")
    results = byoc_core.VirtualMachine(byoc_core.load(tmp_path / "model.byoc"))["main"](x)
    for result, expected in zip(results, ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.parametrize(("dtype", "field"), [("complex64", "float_data"), ("complex128", "double_data")])
def test_weights_in_typed_fields(dtype: str, field: str) -> None:
    tensor = TensorProto(name="w", data_type=DTYPES[dtype], dims=[2])
    getattr(tensor, field).extend([1.0, 2.0, 3.0, -4.0])
    node = helper.make_node("Identity", ["w"], ["y"])
    outputs = [helper.make_tensor_value_info("y", DTYPES[dtype], [2])]
    model = helper.make_model(helper.make_graph([node], "g", [], outputs, [tensor]))
    result = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))["main"]()
    np.testing.assert_array_equal(result, np.array([1 + 2j, 3 - 4j], dtype), strict=True)
    del getattr(tensor, field)[-1]
    broken = helper.make_model(helper.make_graph([node], "g", [], outputs, [tensor]))
    with pytest.raises(FrontendError, match="the number of elements does not fit the shape"):
        from_onnx(broken)


def test_arithmetic_is_refused() -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.COMPLEX64, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", values[:1], values[1:])
    with pytest.raises(FrontendError, match=r"\(Exp\).*complex64"):
        from_onnx(helper.make_model(graph))
    graph.node[0].CopyFrom(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT))
    with pytest.raises(FrontendError, match=r"\(Cast\).*complex64"):
        from_onnx(helper.make_model(graph))


@pytest.mark.parametrize("dtype", DTYPES)
def test_modules_are_printed_and_parsed(dtype: str) -> None:
    module = from_onnx(_model(dtype))
    assert f'R.Tensor(("n", 2), "{dtype}")' in str(module)
    text = (
        "from byoc_core import script as R\n@R.ir_module\nclass Module:\n    @R.function\n"
        f'    def main(x: R.Tensor((2,), "{dtype}")) -> R.Tensor((4,), "{dtype}"):\n'
        "        y = R.concat(x, x)\n        return y\n"
    )
    assert str(R.parse(str(R.parse(text)))) == str(R.parse(text))


def test_export_as_plain_c_is_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.COMPLEX64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.COMPLEX64, [4])],
    )
    executable = byoc_core.build(from_onnx(helper.make_model(graph)), [])
    with pytest.raises(CodegenError, match="tensors of complex64"):
        executable.export_c(tmp_path)


def test_dlpack_has_the_code() -> None:
    info = dtype_info("complex64")
    assert (info.dl_code, info.bits, info.itemsize) == (DLCode.COMPLEX, 64, 8)
