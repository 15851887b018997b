"""Sessions: calls by name, by position and by keyword, and values of all forms."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import CallError, OptionsError
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.runtime.value_forms import SUFFIXES
from byoc_core.session import Session
from byoc_core.session.values import values_of

from core.tests.session.conftest import Write

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SHIFT = np.array([10, 20, 30], np.float32)
Y = X * np.array([1, 2, 3], np.float32) + SHIFT


@pytest.fixture
def session(write: Write) -> Session:
    return Session(write(), [])


def test_inputs_and_outputs_have_names_dtypes_and_sizes(session: Session) -> None:
    x, shift = session.inputs
    assert (x.name, x.dtype, x.symbols, str(x)) == ("x", "float32", ("n",), "x: float32[n, 3]")
    assert (shift.shape, shift.symbols) == ((3,), ())
    assert [str(output) for output in session.outputs] == ["y: float32[n, 3]", "total: float32[n]"]
    assert (
        repr(session) == "<session x: float32[n, 3], shift: float32[3] -> y: float32[n, 3], total: float32[n];"
        " backends: host>"
    )


def test_calls_in_all_ways_return_the_same(session: Session) -> None:
    feeds = {"shift": SHIFT, "x": X}
    for found in (session(X, SHIFT), session(X, shift=SHIFT), session(**feeds)):
        assert list(found) == ["y", "total"]
        np.testing.assert_array_equal(found["y"], Y)
        np.testing.assert_array_equal(found["total"], Y.sum(1))
    y, total = session.run(None, feeds)
    np.testing.assert_array_equal(y, Y)
    again, same = session.run(["total", "y"], feeds)
    np.testing.assert_array_equal(again, total)
    np.testing.assert_array_equal(same, y)
    assert session.run([], feeds) == []


def test_results_go_into_given_buffers(session: Session) -> None:
    y = np.empty((2, 3), np.float32)
    (found, total) = session.run(None, {"x": X, "shift": SHIFT}, out={"y": y})
    assert found is y
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(total, Y.sum(1))


class Watched:
    """A function of a machine that keeps the arrays of its calls."""

    def __init__(self, call: Any, seen: list[Any]) -> None:
        self.call, self.seen = call, seen

    def run(self, feeds: Any, out: Any, state: Any) -> Any:
        self.seen.append(feeds)
        return self.call.run(feeds, out, state)


def watch(session: Session) -> list[Any]:
    """Return a list that receives the arrays of all calls from now on."""
    seen: list[Any] = []
    session.__dict__["_call"] = Watched(session.__dict__["_call"], seen)
    return seen


class Foreign:
    """A tensor of another package."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **arguments: Any) -> Any:
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("casting", ["no", "safe"])
def test_tensors_of_other_packages_are_read_in_place(write: Write, casting: Any) -> None:
    identity = '<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) { y = Identity(x) }'
    session = Session(write(identity), [], casting=casting)
    seen = watch(session)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": Foreign(x)})[0], x)
    (feeds,) = seen
    array = feeds["x"].array if casting == "no" else feeds["x"]
    assert np.shares_memory(array, x)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"x": X}, "function `main`: input `shift` is missing; expected x, shift"),
        ({}, "input `x`, `shift` is missing"),
        ({"x": X, "shfit": SHIFT}, "has no input `shfit`; expected x, shift. Did you mean 'shift'?"),
        ({"x": X, "shift": SHIFT, "z": X}, "has no input `z`; expected x, shift"),
        ({"x": X.astype(np.float64), "shift": SHIFT}, "input 0 `x`: wrong dtype; got float64, expected float32"),
        ({"x": X[:, :2], "shift": SHIFT}, "input 0 `x`: axis 1 has the wrong size; got [2, 2], expected [n, 3]"),
        ({"x": X[0], "shift": SHIFT}, "input 0 `x`: wrong rank; got 1, shape [3], expected 2, shape [n, 3]"),
        ({"x": X.tolist(), "shift": SHIFT}, "input 0 `x`: is not an array; got list"),
        ([X, SHIFT], "inputs are not passed by name; got list"),
    ],
)
def test_wrong_inputs_are_named(session: Session, feeds: Any, message: str) -> None:
    with pytest.raises(CallError, match=re.escape(message)):
        session.run(None, feeds)
    np.testing.assert_array_equal(session(X, SHIFT)["y"], Y)


def test_wrong_calls_are_named(session: Session) -> None:
    with pytest.raises(CallError, match=r"has no output `z`; expected y, total"):
        session.run(["z"], {"x": X, "shift": SHIFT})
    with pytest.raises(CallError, match="output names are a single text; got 'total', expected a list"):
        session.run("total", {"x": X, "shift": SHIFT})
    with pytest.raises(CallError, match="gets input `x` twice, by position and by keyword"):
        session(X, SHIFT, x=X)
    with pytest.raises(CallError, match=r"wrong number of inputs; got 3, expected 2: x, shift"):
        session(X, SHIFT, X, z=X)
    with pytest.raises(CallError, match="wrong number of inputs"):
        session(X)
    with pytest.raises(CallError, match="has no output `z`"):
        session.run(None, {"x": X, "shift": SHIFT}, out={"z": X})


@pytest.mark.parametrize(
    ("casting", "value", "is_taken"),
    [
        ("safe", X.tolist(), True),
        ("safe", [[1, 2, 3]], True),
        ("safe", X.astype(np.float16), True),
        ("safe", X.astype(np.int16), True),
        ("safe", X.astype(np.float64), False),
        ("safe", X.astype(np.int64), False),
        ("safe", [[1j, 2, 3]], False),
        ("safe", [["1", "2", "3"]], False),
        ("safe", [[1.0, 2.0, 3.0], [1.0]], False),
        ("safe", "text", False),
        ("safe", None, False),
        ("same_kind", X.astype(np.float64), True),
        ("same_kind", X.astype(np.int64), True),
        ("same_kind", X.astype(np.complex64), False),
    ],
)
def test_inputs_are_converted_on_request(write: Write, casting: Any, value: Any, *, is_taken: bool) -> None:
    session = Session(write(), [], casting=casting)
    if not is_taken:
        with pytest.raises(CallError, match="input `x`"):
            session(value, SHIFT)
        return
    expected = np.asarray(value, np.float32) * np.array([1, 2, 3], np.float32) + SHIFT
    np.testing.assert_array_equal(session(value, [10, 20, 30])["y"], expected)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, np.array(2**40), np.array(2**32, np.uint64), 1.5])
def test_integers_out_of_range_are_refused(write: Write, value: Any) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (int32 x) => (int32 y) { y = Identity(x) }'
    session = Session(write(text), [], casting="same_kind")
    np.testing.assert_array_equal(session(2**31 - 1)["y"], 2**31 - 1)
    np.testing.assert_array_equal(session(np.int64(-(2**31)))["y"], -(2**31))
    with pytest.raises(CallError, match="input `x`"):
        session(value)


STRINGS = """
<ir_version: 10, opset_import: ["" : 20]>
g (string[n, 2] words, seq(float[m]) parts, float[k] x) => (string[n, 2] same, seq(float[m]) more, int64 count) {
    same = Identity(words)
    more = SequenceInsert(parts, x)
    count = SequenceLength(more)
}
"""


@pytest.mark.parametrize("casting", ["no", "same_kind"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_strings_and_sequences_are_values(write: Write, tmp_path: Path, casting: Any, *, is_saved: bool) -> None:
    session = Session(write(STRINGS), [], casting=casting)
    if is_saved:
        session.executable.save(tmp_path / "model.byoc")
        session = Session(tmp_path / "model.byoc", casting=casting)
    assert [(v.name, v.dtype, v.form) for v in session.inputs] == [
        ("words", "string", "strings"),
        ("parts", "float32", "sequence"),
        ("x", "float32", "tensor"),
    ]
    assert [str(v) for v in session.outputs][:2] == ["same: string[n, 2]", "more: sequence of float32"]
    words = [["a", "bc"], ["", "déf"]]
    parts: Sequence[Any] = [np.ones(2, np.float32), np.zeros(0, np.float32)]
    x = np.array([1, 2, 3], np.float32)
    for given in (words, np.array(words), np.array(words, object)):
        found = session(given, parts, x=x)
        assert found["same"].tolist() == words
        assert [part.tolist() for part in found["more"]] == [[1, 1], [], [1, 2, 3]]
        assert found["count"] == 3
    with pytest.raises(CallError, match="input `words`: is not an array of strings"):
        session([[1, 2]], parts, x)
    with pytest.raises(CallError, match="input `parts`: is not a sequence of arrays"):
        session(words, x, x)
    with pytest.raises(CallError, match="input `parts`: sequence, tensor 0 has another dtype or rank"):
        session(words, [np.ones((2, 2), np.float32)], x)


LISTS = """
<ir_version: 10, opset_import: ["" : 20]>
g (seq(string[m]) parts, string[k] x) => (seq(string[m]) more, string[n] all, int64 count) {
    more = SequenceInsert(parts, x)
    all = ConcatFromSequence<axis = 0>(more)
    count = SequenceLength(more)
}
"""


@pytest.mark.parametrize("casting", ["no", "same_kind"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_lists_of_strings_are_values(write: Write, tmp_path: Path, casting: Any, *, is_saved: bool) -> None:
    session = Session(write(LISTS), [], casting=casting)
    if is_saved:
        session.executable.save(tmp_path / "model.byoc")
        session = Session(tmp_path / "model.byoc", casting=casting)
    info = session.inputs[0]
    assert (info.name, info.dtype, info.form, info.shape) == ("parts", "string", "sequence of strings", None)
    assert str(session.outputs[0]) == "more: sequence of strings"
    parts: Sequence[Any] = [["a", "déf"], np.array([], object), np.array(["日本"])]
    x = np.array(["", "x"])
    found = session(parts, x=x)
    assert [part.tolist() for part in found["more"]] == [["a", "déf"], [], ["日本"], ["", "x"]]
    assert found["all"].tolist() == ["a", "déf", "日本", "", "x"]
    assert found["count"] == 4
    assert [part.tolist() for part in session([], x)["more"]] == [["", "x"]]
    session.warm_up()
    with pytest.raises(CallError, match="input `parts`: sequence, tensor 1 is not an array of strings; got list"):
        session([["a"], [1]], x)
    with pytest.raises(CallError, match="input `parts`: is not a sequence of arrays; got str"):
        session("text", x)
    with pytest.raises(CallError, match="input `parts`: sequence, tensor 0 has another dtype or rank"):
        session([[["a"]]], x)


@pytest.mark.parametrize(
    ("element", "value", "text"),
    [
        (onnx.helper.make_tensor_type_proto(onnx.TensorProto.STRING, ["n"]), ["a", ""], "x: optional strings["),
        (
            onnx.helper.make_sequence_type_proto(onnx.helper.make_tensor_type_proto(onnx.TensorProto.STRING, ["n"])),
            [["a", ""], ["é"]],
            "x: optional sequence of strings",
        ),
    ],
)
def test_optional_strings_are_values(element: onnx.TypeProto, value: Any, text: str) -> None:
    optional = onnx.helper.make_optional_type_proto(element)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [onnx.helper.make_value_info("x", optional)],
        [onnx.helper.make_value_info("y", optional)],
    )
    session = Session(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8), [])
    assert str(session.inputs[0]).startswith(text)
    assert session(None)["y"] is None
    found = session(value)["y"]
    assert [part.tolist() for part in found] == value if isinstance(found, list) else found.tolist() == value
    session.warm_up()


def test_forms_that_do_not_fit_the_arrays_are_ignored() -> None:
    """Forms come from a report, which may be a stranger's."""
    names = [f"x{suffix}" for suffix in SUFFIXES["sequence of strings"]]
    forms = {"input_forms": [["x", "sequence of strings"]]}

    def form_of(*specs: tuple[str, int]) -> str:
        arrays = tuple(TensorSpec(name, dtype, (2,) * rank) for name, (dtype, rank) in zip(names, specs, strict=True))
        return values_of(Signature(arrays, ()), forms)[0][0].form

    assert form_of(("uint8", 1), ("int64", 1), ("int64", 2)) == "sequence of strings"
    for wrong in (
        (("int8", 1), ("int64", 1), ("int64", 2)),
        (("uint8", 1), ("int64", 2), ("int64", 2)),
        (("uint8", 1), ("int32", 1), ("int64", 2)),
        (("uint8", 1), ("int64", 1), ("int64", 1)),
        (("uint8", 1), ("int64", 1), ("float32", 2)),
    ):
        assert form_of(*wrong) == "tensor"


def test_absent_optional_values_are_none(tmp_path: Path) -> None:
    tensor = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ["n"])
    optional = onnx.helper.make_optional_type_proto(tensor)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [onnx.helper.make_value_info("x", optional)],
        [onnx.helper.make_value_info("y", optional)],
    )
    onnx.save_model(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8),
        tmp_path / "optional.onnx",
    )
    session = Session(tmp_path / "optional.onnx", [])
    assert str(session.inputs[0]).startswith("x: optional tensor of float32[")
    assert session(None)["y"] is None
    assert session.run(None, {}) == [None]
    np.testing.assert_array_equal(session(X[0])["y"], X[0])
    session.warm_up()


def test_tensors_named_like_parts_stay_tensors(write: Write) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (uint8[n] a_bytes, int64[m] a_lengths) => (uint8[n] y, int64[m] z) {
        y = Identity(a_bytes)
        z = Identity(a_lengths)
    }"""
    model = onnx.parser.parse_model(text)
    for value in model.graph.input:
        value.name = value.name.replace("_", ".")
    for node in model.graph.node:
        node.input[0] = node.input[0].replace("_", ".")
    session = Session(model, [])
    assert [value.form for value in session.inputs] == ["tensor", "tensor"]


def test_warming_up_runs_every_combination_of_sizes(write: Write) -> None:
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, m] x, float[m] s) => (float[n, m] y) { y = Mul(x, s) }'
    session = Session(write(text), [])
    seen = watch(session)
    session.warm_up()
    session.warm_up(n=[1, 8], m=(2, 3))
    session.warm_up({"s": np.ones(5, np.float32)}, n=np.int64(4))
    assert [feeds["x"].shape for feeds in seen] == [(1, 1), (1, 2), (1, 3), (8, 2), (8, 3), (4, 5)]
    with pytest.raises(OptionsError, match=r"size `k`: is no size of the inputs; expected m, n"):
        session.warm_up(k=1)
    for size in (-1, 1.5, "1", True):
        with pytest.raises(OptionsError, match="size `n`: is no size"):
            session.warm_up(n=[1, size])
    with pytest.raises(CallError, match="has no input `z`"):
        session.warm_up({"z": X})


def test_calls_run_in_threads_of_the_session(session: Session) -> None:
    futures = [session.run_async(["y"], {"x": X + i, "shift": SHIFT}) for i in range(50)]
    for i, future in enumerate(futures):
        np.testing.assert_allclose(future.result()[0], (X + i) * np.array([1, 2, 3], np.float32) + SHIFT)
    with pytest.raises(CallError, match="is missing"):
        session.run_async(None, {}).result()


def test_many_threads_call_one_session(session: Session) -> None:
    wrong: list[Any] = []

    def call(number: int) -> None:
        expected = Y + number * np.array([1, 2, 3], np.float32)
        found = [session(X + number, SHIFT)["y"] for _ in range(50)]
        wrong.extend(y for y in found if not np.array_equal(y, expected))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_profile_of_calls(session: Session) -> None:
    found = session.profile({"shift": SHIFT}, sizes={"n": 4}, seconds=0.0)
    assert found.sizes == {"n": 4}


@pytest.mark.parametrize("form", ["bytes", "proto", "module", "executable", "artifact", "artifact bytes"])
def test_models_of_all_kinds_open(write: Write, tmp_path: Path, form: str) -> None:
    path = write()
    module = byoc_core.from_onnx(path)
    executable = byoc_core.build(module, [])
    executable.save(tmp_path / "model.byoc")
    model: Any = {
        "bytes": path.read_bytes(),
        "proto": onnx.load(path),
        "module": module,
        "executable": executable,
        "artifact": tmp_path / "model.byoc",
        "artifact bytes": executable.to_bytes(),
    }[form]
    choices: dict[str, Any] = {"backends": []} if form in ("bytes", "proto", "module") else {}
    session = Session(model, **choices)
    np.testing.assert_array_equal(session(X, SHIFT)["y"], Y)
    if not choices:
        with pytest.raises(OptionsError, match=r"backends, fallback: .* is compiled already"):
            Session(model, [], fallback="error")
        with pytest.raises(OptionsError, match=r"max_nodes: .* is compiled already"):
            Session(model, max_nodes=3)
    elif form == "module":
        with pytest.raises(OptionsError, match="max_nodes: does not apply to an imported module"):
            Session(model, [], max_nodes=3)


def test_wrong_arguments_are_named(write: Write, tmp_path: Path) -> None:
    with pytest.raises(
        OptionsError, match="casting: has an unknown value; got 'unsafe', expected no or safe or same_kind"
    ):
        Session(write(), [], casting="unsafe")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match=re.escape("missing.onnx")):
        Session(tmp_path / "missing.onnx")
    with pytest.raises(CallError, match=r"has no function `mian`; expected main. Did you mean 'main'"):
        Session(write(), [], function="mian")
    with pytest.raises(TypeError, match="unexpected keyword argument 'backend'"):
        Session(write(), backend=[])
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(byoc_core.errors.FrontendError, match="is not an ONNX model"):
        Session(tmp_path / "empty.onnx", [])


def test_machines_take_keywords_and_explain_paths(write: Write, tmp_path: Path) -> None:
    executable = byoc_core.build(byoc_core.from_onnx(write()), [])
    call = byoc_core.VirtualMachine(executable)["main"]
    for y, total in (call(X, shift=SHIFT), call(shift=SHIFT, x=X)):
        np.testing.assert_array_equal(y, Y)
        np.testing.assert_array_equal(total, Y.sum(1))
    with pytest.raises(CallError, match="function `main`: gets input `x` twice"):
        call(X, x=X, shift=SHIFT)
    with pytest.raises(OptionsError, match=r"got a path; expected an executable. byoc_core.Session\(path\) opens"):
        byoc_core.VirtualMachine(tmp_path / "model.byoc")  # type: ignore[arg-type]
