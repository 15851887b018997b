"""Strings through loops and scans, and as inputs and outputs of compiled models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.runtime.sequences import pack_string_sequence
from onnx import helper

from core.tests.frontend.string_models import (
    TENSORS,
    TEXTS,
    assert_same,
    by_onnxruntime,
    check,
    draw_texts,
    parse,
)

# Scan outputs and inputs


@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("limit", ["initializer", "input"])
def test_rounds_stack_strings(rounds: int, limit: str) -> None:
    """Of a known number of rounds, unrolled, and of a number known only at run time."""
    head = "g (string[n] x, int64 m)" if limit == "input" else "g (string[n] x)"
    weights = "" if limit == "input" else f"<int64 m = {{{rounds}}}>"
    graph = f"""{head} => (string[a, b] y, string[c] z) {weights} {{ z, y = Loop(m, , x) <
        body = b (int64 i, bool t, string[u] v_in) => (bool c_out, string[u] v_out, string[u] o) {{
            c_out = Identity(t) f = Cast<to = 8>(i) v_out = StringConcat(v_in, f) o = StringConcat(f, v_in) }}> }}"""
    feeds = {"x": draw_texts(3), **({"m": np.array(rounds)} if limit == "input" else {})}
    check(graph, feeds, by_onnxruntime)


def test_no_rounds_stack_no_strings() -> None:
    graph = """g (string[n] x) => (string[a, b] y, string[c] z) <int64 m = {0}> { z, y = Loop(m, , x) <
        body = b (int64 i, bool t, string[u] v_in) => (bool c_out, string[u] v_out, string[u] o) {
            c_out = Identity(t) v_out = Identity(v_in) o = Identity(v_in) }> }"""
    y, z = onnx_backend.prepare(parse(graph), backends=[]).run([draw_texts(3)])
    assert (y.shape, y.dtype) == ((0, 3), np.dtype(object))
    assert_same(z, draw_texts(3))


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", ["4", "n"])
def test_slices_of_strings_are_scanned(axis: int, backward: int, length: str) -> None:
    sizes = f"{length}, 2" if axis == 0 else f"2, {length}"
    graph = f"""g (string[2] x, string[{sizes}] k) => (string[2] y, string[a, b] z) {{
        y, z = Scan<num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{backward}],
            scan_output_axes = [{axis}], scan_output_directions = [{backward}],
            body = b (string[2] state, string[2] item) => (string[2] next, string[2] o) {{
                next = StringConcat(state, item) o = StringConcat(item, state) }}>(x, k) }}"""
    x, k = draw_texts(2), draw_texts(4, 2, word="ß")
    state, outputs = x, []
    for item in k[::-1] if backward else k:
        outputs.append(item + state)
        state = state + item
    z = np.array(outputs[::-1] if backward else outputs, object)
    check(graph, {"x": x, "k": k if axis == 0 else k.T}, lambda *_: [state, z if axis == 0 else z.T])


def test_many_slices_of_strings_are_scanned() -> None:
    """Too many rounds to be unrolled."""
    graph = """g (string[300] k) => (string y, string[300] z) { e = Constant<value_string = "">()
        y, z = Scan<num_scan_inputs = 1, body = b (string state, string item) => (string next, string o) {
            next = Identity(item) o = StringConcat(state, item) }>(e, k) }"""
    k = draw_texts(300)
    expected = [np.array(k[-1], object), np.array(["", *k[:-1]], object) + k]
    check(graph, {"k": k}, lambda *_: expected)


def test_batches_of_strings_are_scanned() -> None:
    """The operator in the form of operator set 8."""
    graph = """g (string[2, 3] x, string[2, 4, 3] k) => (string[2, 3] y, string[2, 4, 3] z) {
        y, z = Scan<num_scan_inputs = 1, body = b (string[3] state, string[3] item) => (string[3] next, string[3] o) {
            next = Identity(item) o = Identity(state) }>(, x, k) }"""
    x, k = draw_texts(2, 3, word="x"), draw_texts(2, 4, 3)
    y, z = onnx_backend.prepare(parse(graph, 8), backends=[]).run([x, k])
    assert_same(y, k[:, -1])
    assert_same(z, np.concatenate([x[:, None], k[:, :-1]], axis=1))


# Inputs and outputs of compiled models


def test_what_a_model_takes_and_gives(tmp_path: Path) -> None:
    module = from_onnx(parse("g (seq(string[m, n]) s, string[k] x) => (seq(string[a, b]) y) { y = Identity(s) }"))
    main = module["main"]
    assert main.input_names == ("s.elements.bytes", "s.elements.lengths", "s.shapes", "x.bytes", "x.lengths")
    assert main.output_names == ("y.elements.bytes", "y.elements.lengths", "y.shapes")
    assert [str(param.type) for param in main.params[:3]] == [
        'R.Tensor(("s_elements_bytes",), "uint8")',
        'R.Tensor(("s_elements",), "int64")',
        'R.Tensor(("s_length", 2), "int64")',
    ]
    executable = byoc_core.build(module, [])
    assert executable.report_data["value_forms"] == {
        "main": {
            "input_forms": [["s", "sequence of strings"], ["x", "strings"]],
            "output_forms": [["y", "sequence of strings"]],
        }
    }
    executable.save(tmp_path / "model.byoc")
    data, lengths, shapes = pack_string_sequence(TENSORS)
    script = f"""
import numpy as np, byoc_core
machine = byoc_core.VirtualMachine(byoc_core.load({str(tmp_path / "model.byoc")!r}))
feeds = {{
    "s.elements.bytes": np.array({data.tolist()}, "uint8"), "s.elements.lengths": np.array({lengths.tolist()}),
    "s.shapes": np.array({shapes.tolist()}), "x.bytes": np.zeros(0, "uint8"), "x.lengths": np.zeros(0, "int64"),
}}
results = machine.run("main", feeds)
from byoc_core.runtime.sequences import unpack_string_sequence
assert [part.tolist() for part in unpack_string_sequence(*results)] == {[part.tolist() for part in TENSORS]}
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (
            "g (seq(string[n]) s, int64[n] x) => (seq(string[n]) y) { y = SequenceInsert(s, x) }",
            "node `y` (SequenceInsert): inserts a tensor of another dtype; got int64, expected string",
        ),
        (
            "g (seq(int64[n]) s, string[n] x) => (seq(int64[n]) y) { y = SequenceInsert(s, x) }",
            "node `y` (SequenceInsert): inserts a tensor of another dtype; got string, expected int64",
        ),
        (
            "g (string[n] x, int64[n] k, int64 i) => (string y) { s = SequenceConstruct(x, k) y = SequenceAt(s, i) }",
            (
                "node `y` (SequenceAt): has a sequence of tensors that differ in dtype or rank; "
                'got R.Tensor(("n",), "int64"), expected like a tensor of strings'
            ),
        ),
        (
            (
                "g (string[n] x, int64[n] k) => (string[m] y) { s = SequenceConstruct(x, k) "
                "y = ConcatFromSequence<axis = 0>(s) }"
            ),
            "node `y` (ConcatFromSequence): joins strings and numbers",
        ),
        (
            "g (seq(string[n]) s) => (string[n] y) { y = Neg(s) }",
            "node `y` (Neg): needs `s` as a tensor; got a sequence",
        ),
        (
            "g (seq(string) s, int64 i) => (string y) { y = SequenceAt(s, i) }",
            (
                "node `y` (SequenceAt): needs the rank of the tensors in a sequence, but the rank is only known at run "
                "time. State the element type of the sequence with its axes in the model's input."
            ),
        ),
        (
            (
                "g (bool c, seq(string[n]) s, seq(float[n]) t) => (seq(string[n]) y) { y = If(c) <"
                "then_branch = t () => (u) { u = Identity(s) }, else_branch = e () => (v) { v = Identity(t) }> }"
            ),
            "node `y` (If): has output `y` as a sequence of strings in one place, and of numbers in another",
        ),
        (
            "g (string[n] x, int64[n] k) => (string[m] y) { y = Concat<axis = 0>(x, k) }",
            "node `y` (Concat): needs `k` as a tensor of strings",
        ),
    ],
)
def test_what_is_refused(graph: str, text: str) -> None:
    model = parse(graph)
    if "seq(string) s" in graph:
        model.graph.input[0].type.sequence_type.elem_type.tensor_type.ClearField("shape")
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == f"ONNX model, {text}"


def test_a_sequence_of_sequences_is_refused() -> None:
    """ONNX has no operator on such a value."""
    model = parse("g (seq(string[n]) s) => (seq(string[n]) y) { y = Identity(s) }")
    outer = helper.make_sequence_type_proto(helper.make_sequence_type_proto(TEXTS))
    model.graph.input[0].type.CopyFrom(outer)
    with pytest.raises(FrontendError) as caught:
        from_onnx(model)
    assert str(caught.value) == (
        "ONNX model, input `s`: is neither a tensor, nor a sequence of tensors, nor one of these as optional value, "
        "nor a map; got sequence"
    )


def test_tensors_of_several_ranks_pass_through() -> None:
    model = parse("g (seq(string) s, string[n] x) => (seq(string) y) { y = SequenceInsert(s, x) }")
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.sequence_type.elem_type.tensor_type.ClearField("shape")
    prepared = onnx_backend.prepare(model, backends=[])
    assert_same(prepared.run([[draw_texts(2, 3)], draw_texts(4)])[0], [draw_texts(2, 3), draw_texts(4)])
    assert_same(prepared.run([[], draw_texts(4)])[0], [draw_texts(4)])
