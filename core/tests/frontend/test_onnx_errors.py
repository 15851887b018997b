"""Bad models: each gives a single clear error of our own, with the names of model and node."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core.errors import ByocError, FrontendError, UnsupportedOpsError
from byoc_core.frontend.onnx import from_onnx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Case

pytestmark = pytest.mark.lowest


def _model(
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[onnx.ValueInfoProto] | None = None,
    outputs: Sequence[str] = ("y",),
    initializers: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    if inputs is None:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], initializers)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports)


def _node(
    op_type: str, inputs: Sequence[str] = ("x",), outputs: Sequence[str] = ("y",), **attrs: Any
) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, outputs, name=attrs.pop("name", "the_node"), **attrs)


def _ints(name: str, *values: int) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


_INTEGER_MAP = onnx.TypeProto(
    map_type=onnx.TypeProto.Map(
        key_type=TensorProto.INT64, value_type=helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    )
)


def _refuse(model: Any, error: type[ByocError] = FrontendError) -> str:
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert type(caught.value) is error
    if error is UnsupportedOpsError:  # the advice is tested in `test_register_op.py`
        return f"{caught.value.where}: {caught.value.problem}; got {caught.value.got}"
    return str(caught.value)


def test_unsupported_ops_are_listed_together_with_counts() -> None:
    model = _model(
        [
            _node("NorThis", ["x"], ["a"]),
            _node("NorThis", ["a"], ["b"]),
            _node("Relu", ["b"], ["c"]),
            _node("Fused", ["c"], ["d"], domain="com.acme"),
            _node("NoSuchOp", ["d"], ["y"]),
        ],
        domains=["com.acme"],
    )
    assert _refuse(model, UnsupportedOpsError) == (
        "ONNX model: 4 of 5 nodes have unsupported ops; got NoSuchOp (1x), NorThis (2x), com.acme.Fused (1x)"
    )


def test_a_model_of_a_foreign_domain_only() -> None:
    model = _model([_node("Scaler", domain="com.acme")])
    del model.opset_import[:]
    model.opset_import.add(domain="com.acme", version=1)
    assert _refuse(model, UnsupportedOpsError) == (
        "ONNX model: 1 of 1 nodes have unsupported ops; got com.acme.Scaler (1x)"
    )


_MALFORMED: list[tuple[str, onnx.ModelProto, str]] = [
    (
        "cycle",
        _model(
            [_node("Add", ["x", "b"], ["a"], name="p"), _node("Relu", ["a"], ["b"], name="q"), _node("Relu", ["b"])]
        ),
        (
            "ONNX model: the graph has a cycle; got nodes on or behind the cycle: node `p` (Add), node `q` (Relu), "
            "node `the_node` (Relu)"
        ),
    ),
    (
        "reads its own output",
        _model([_node("Add", ["x", "y"], ["y"])]),
        "ONNX model: the graph has a cycle; got nodes on or behind the cycle: node `the_node` (Add)",
    ),
    (
        "undefined input",
        _model([_node("Add", ["x", "weights"])], initializers=[_ints("weight", 1)]),
        (
            "ONNX model, node `the_node` (Add): reads undefined value `weights`: no input, initializer or node output "
            "has this name. "
            "Did you mean 'weight'?"
        ),
    ),
    (
        "undefined output",
        _model([_node("Relu")], outputs=["z"]),
        "ONNX model, output `z`: has no definition: no input, initializer or node output has this name",
    ),
    (
        "defined twice",
        _model([_node("Relu", name="p"), _node("Exp", name="q")]),
        "ONNX model, node `q` (Exp): defines `y` a second time",
    ),
    (
        "two initializers",
        _model([_node("Relu")], initializers=[_ints("w", 1), _ints("w", 2)]),
        "ONNX model, initializer `w`: is defined twice",
    ),
    (
        "no outputs",
        _model([_node("Relu")], outputs=[]),
        "ONNX model: the graph has no outputs",
    ),
    (
        "two inputs",
        _model([_node("Relu")], inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])] * 2),
        "ONNX model, input `x`: is defined twice",
    ),
    (
        "sequence input",
        _model([_node("Relu")], inputs=[helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1])]),
        "ONNX model, node `the_node` (Relu): needs `x` as a tensor; got a sequence",
    ),
    (
        "map of no scalars as input",
        _model(
            [_node("Relu")],
            inputs=[
                onnx.ValueInfoProto(
                    name="x", type=onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=TensorProto.INT64))
                )
            ],
        ),
        "ONNX model, input `x`: is a map of values other than scalars",
    ),
    (
        "sequence of maps as input",
        _model(
            [_node("Relu")],
            inputs=[onnx.ValueInfoProto(name="x", type=helper.make_sequence_type_proto(_INTEGER_MAP))],
        ),
        (
            "ONNX model, input `x`: is neither a tensor, nor a sequence of tensors, nor one of these as optional "
            "value, nor a map; got map"
        ),
    ),
    (
        "map input for an operator on tensors",
        _model([_node("Relu")], inputs=[onnx.ValueInfoProto(name="x", type=_INTEGER_MAP)]),
        "ONNX model, node `the_node` (Relu): needs `x` as a tensor; got a map",
    ),
    (
        "old opset",
        _model([_node("Relu")], opset=0),
        (
            "ONNX model: needs an unsupported version of the ONNX operator set; got 0, expected 1 to "
            f"{onnx.defs.onnx_opset_version()}. Convert the model with onnx.version_converter."
        ),
    ),
    (
        "future opset",
        _model([_node("Relu")], opset=1000),
        (
            "ONNX model: needs an unsupported version of the ONNX operator set; got 1000, expected 1 to "
            f"{onnx.defs.onnx_opset_version()}. Update the package `onnx`, or export the model for an older opset."
        ),
    ),
    (
        "op of a later opset",
        _model([_node("Gelu")], opset=13),
        "ONNX model, node `the_node` (Gelu): the op does not exist in operator set 13",
    ),
    (
        "wrong number of inputs",
        _model([_node("Add", ["x"])]),
        "ONNX model, node `the_node` (Add): has the wrong number of inputs; got 1, expected 2",
    ),
    (
        "left-out input",
        _model([_node("Add", ["", "x"])]),
        "ONNX model, node `the_node` (Add): lacks input 0",
    ),
    (
        "type error",
        _model([_node("Add", ["x", "w"])], initializers=[numpy_helper.from_array(np.ones(3, np.float32), "w")]),
        (
            "ONNX model, node `the_node` (Add): op `add`, operand `y`: axis 0 has size 3 and does not broadcast with "
            "size 4; "
            "got (3,), expected a shape broadcasting with (n, 4)"
        ),
    ),
    (
        "unknown attribute",
        _model([_node("Relu", slope=1.0)]),
        "ONNX model, node `the_node` (Relu): has unsupported attributes; got slope",
    ),
    (
        "attribute of another type",
        _model([_node("Softmax", axis=1.0)]),
        "ONNX model, node `the_node` (Softmax): attribute `axis` has the wrong type; got float, expected an int",
    ),
    (
        "missing attribute",
        _model([_node("Concat", ["x", "x"])]),
        "ONNX model, node `the_node` (Concat): lacks attribute `axis`",
    ),
    (
        "secondary output in use",
        _model(
            [_node("InstanceNormalization", ["x", "s", "s"], ["a", "y"])],
            inputs=[
                helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 3]),
                helper.make_tensor_value_info("s", TensorProto.FLOAT, [2]),
            ],
        ),
        (
            "ONNX model, node `the_node` (InstanceNormalization): output `y` is not supported, but the model uses the "
            "output"
        ),
    ),
    (
        "conv without a spatial dimension",
        _model(
            [_node("Conv", ["x", "w"])],
            inputs=[helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
            initializers=[numpy_helper.from_array(np.ones((1, 2), np.float32), "w")],
        ),
        (
            "ONNX model, node `the_node` (Conv): has an input of unsupported rank 2; expected an input "
            "of shape (N, C, W), (N, C, H, W) or (N, C, D, H, W)"
        ),
    ),
    (
        "pad mode",
        _model([_node("Pad", ["x", "p"], mode="wrap")], initializers=[_ints("p", 0, 1, 0, 1)]),
        (
            "ONNX model, node `the_node` (Pad): attribute `mode` is unknown; got wrap, expected constant or reflect "
            "or edge"
        ),
    ),
    (
        "tensor without a type",
        _model([_node("Identity")], inputs=[helper.make_tensor_value_info("x", 99, [1])]),
        (
            "ONNX model, input `x`: has an unsupported element type; got number 99, expected one of float32, "
            "uint8, "
            "int8, uint16, int16, int32, int64, bool, float16, float64, uint32, uint64, bfloat16, float8_e4m3fn, "
            "float8_e5m2, int4, uint4, int2, uint2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu, float4_e2m1fn, "
            "complex64, complex128"
        ),
    ),
    (
        "strings of unknown rank",
        _model([_node("Identity")], inputs=[helper.make_tensor_value_info("x", TensorProto.STRING, None)]),
        "ONNX model, input `x`: has strings of unknown rank",
    ),
]


@pytest.mark.parametrize(("model", "text"), [case[1:] for case in _MALFORMED], ids=[case[0] for case in _MALFORMED])
def test_malformed_model(model: onnx.ModelProto, text: str) -> None:
    assert _refuse(model) == text


def test_short_weights() -> None:
    tensor = numpy_helper.from_array(np.ones(4, np.float32), "w")
    tensor.raw_data = tensor.raw_data[:-1]
    assert _refuse(_model([_node("Add", ["x", "w"])], initializers=[tensor])) == (
        "ONNX model, initializer `w`: the number of bytes of data does not fit the shape; got 15, expected 16"
    )


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    assert _refuse(path) == f"{path}: cannot be read: No such file or directory"
    assert _refuse(str(tmp_path)) == f"{tmp_path}: cannot be read: Is a directory"
    path.write_bytes(b"")
    assert _refuse(path) == f"{path}: is not an ONNX model: the file is empty"
    path.write_text("# Read me\n\nThis is a text file.\n" * 10)
    assert _refuse(path) == f"{path}: is not an ONNX model, or is truncated; got 320 bytes, rejected by protobuf"
    assert _refuse(b"") == "ONNX model: is not an ONNX model: it has no graph. Is the file complete?"
    assert (
        _refuse(3.5)
        == "from_onnx: cannot import an object of this type; got float, expected a path, bytes or an onnx.ModelProto"
    )
    model = onnx.ModelProto()
    model.graph.CopyFrom(_model([_node("Relu")]).graph)
    assert _refuse(model) == "ONNX model: does not declare a version of the ONNX operator set"


def test_names_that_are_not_text() -> None:
    data = _model([_node("Relu", name="abcdefgh")]).SerializeToString().replace(b"abcdefgh", b"abc\xff\xfefgh")
    assert _refuse(data) == "ONNX model: is damaged: a name is not UTF-8 text; got b'abc\\xff\\xfefgh'"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_raise_only_our_own_errors(data: st.DataObject) -> None:
    weights = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    good = _model(
        [_node("Gemm", ["x", "w"], ["h"], transB=1), _node("Softmax", ["h"], ["y"], axis=-1)], initializers=[weights]
    ).SerializeToString()
    damaged = bytearray(good[: data.draw(st.integers(0, len(good)))])
    for _ in range(data.draw(st.integers(0, 3))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ByocError):
        from_onnx(bytes(damaged))


def _external(tmp_path: Path, location: str, **entries: str) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    path = folder / "m.onnx"
    path.write_bytes(_model([_node("Add", ["x", "w"])], initializers=[tensor]).SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    path = _external(tmp_path, "weights/w.bin", offset="4", length="16")
    (path.parent / "weights").mkdir()
    (path.parent / "weights" / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (array,) = from_onnx(path).constants.values()
    np.testing.assert_array_equal(array, np.array([1, 2, 3, 4], np.float32))
    assert not array.flags.writeable


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret.bin", "sub/../../secret.bin", "", "link.bin", "a\\b"])
def test_external_data_elsewhere_is_never_read(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    path = _external(tmp_path, location)
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    assert _refuse(path) == (
        f"{path}, initializer `w`: has external data outside the model's folder; got {location!r}, "
        "expected a relative path"
    )


def test_external_data_that_does_not_fit(tmp_path: Path) -> None:
    path = _external(tmp_path, "w.bin")
    label = f"{path}, initializer `w`:"
    assert _refuse(path) == f"{label} external data `w.bin` cannot be read: No such file or directory"
    (path.parent / "w.bin").write_bytes(bytes(12))
    assert _refuse(path) == (
        f"{label} the number of bytes of external data does not fit the shape; got 12, expected 16"
    )
    _external(tmp_path, "w.bin", length="16")
    assert _refuse(path) == f"{label} external data `w.bin` is truncated; got 12 bytes, expected 16 or more"
    _external(tmp_path, "w.bin", offset="x")
    assert re.match(f"{re.escape(label)} has external data with a malformed offset or length; got", _refuse(path))
    assert _refuse(path.read_bytes()) == (
        "ONNX model, initializer `w`: has external data, but a model without a file has no folder for external data. "
        "Pass the model's path to from_onnx, or load the data into the model first."
    )


def test_case_builder_reports_what_it_refuses(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case]
) -> None:
    case = make_case(inputs=[np.ones((2, 3), np.float32)], attrs={"direction": 1})
    assert _refuse(node_model("ArgMax", 13, case)) == (
        "ONNX model, node `the_node` (ArgMax): has unsupported attributes; got direction"
    )


def _run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_the_onnx_package() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from byoc_core.errors import FrontendError\n"
        "from byoc_core.frontend.onnx import from_onnx\n"
        "try: from_onnx('x.onnx')\n"
        "except FrontendError as error: print(error)"
    )
    assert _run_python(code) == "ONNX front end: needs the package `onnx`. pip install 'byoc-core[onnx]'."


def test_importing_the_front_end_does_not_import_onnx() -> None:
    assert _run_python("import sys, byoc_core.frontend.onnx; print('onnx' in sys.modules)") == "False"


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("w.bin\0x", "embedded null"),
        ("w" * 5000, "File name too long"),
        ("folder", "Is a directory"),
        ("round", "Symlink loop|Too many levels"),
        ("file/below", "Not a directory"),
        ("secret", "Permission denied"),
    ],
)
def test_external_data_that_the_system_refuses(tmp_path: Path, location: str, reason: str) -> None:
    path = _external(tmp_path, location, offset="0", length="16")
    (path.parent / "folder").mkdir()
    (path.parent / "round").symlink_to("round")
    (path.parent / "file").write_bytes(bytes(16))
    (path.parent / "secret").write_bytes(bytes(16))
    (path.parent / "secret").chmod(0)
    if location == "secret" and os.access(path.parent / "secret", os.R_OK):
        pytest.skip("this user may read everything")
    text = _refuse(path)
    assert text.startswith(f"{path}, initializer `w`: external data ")
    assert re.search(reason, text)


@given(location=st.text(st.characters(exclude_categories=["Cs"])), offset=st.text("0123456789-+ _x", max_size=25))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_external_data_raises_any_other_error(tmp_path: Path, location: str, offset: str) -> None:
    path = _external(tmp_path, location, offset=offset)
    (path.parent / "0").write_bytes(bytes(20))
    with contextlib.suppress(ByocError):
        from_onnx(path)


def test_a_path_that_no_file_can_have() -> None:
    assert re.match("m\ufffd.onnx: cannot be read: embedded null", _refuse("m\0.onnx"))
