"""The builder of lowered functions: buffers, calls, loops, options, outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend.hooks import CValue
from byoc_core.backend.lowered_buffers import Access, BufferPart, BufferRole
from byoc_core.backend.lowered_function import Copy, ExternCall, Loop, parts_of, symbols_in
from byoc_core.backend.lowering import LoweringBuilder
from byoc_core.dims import symbol
from byoc_core.errors import CodegenError
from byoc_core.ir import COMPOSITE, tensor
from byoc_core.native.toolchain import BuildOptions
from byoc_core.partitioning import FuseOpsByPattern
from byoc_core.pattern import CompositePattern, is_op, wildcard

from core.tests.lowered_toys import builder_of

RELU = 'def f(x: R.Tensor(("n", 4))):\n    y = R.nn.relu(x)\n    return y\n'
TWO = "def f(x: R.Tensor((3,)), y: R.Tensor((3,))):\n    s = R.add(x, y)\n    t = R.nn.relu(s)\n    return t\n"


def test_parameters_results_and_intermediates_have_buffers() -> None:
    builder = builder_of(TWO)
    (add, relu) = builder.function.bindings
    x, y = builder.inputs
    assert [builder.buffer(operand) for operand in add.operands] == [x, y]
    total = builder.buffer(add.result)
    assert builder.buffer(relu.operands[0]) is total
    assert builder.buffer(relu.result) is builder.outputs[0]
    assert [(b.name, b.role, b.size) for b in (x, total, builder.outputs[0])] == [
        ("x", BufferRole.INPUT, 3),
        ("s", BufferRole.INTERMEDIATE, 3),
        ("t", BufferRole.OUTPUT, 3),
    ]


def test_names_of_buffers_are_unique() -> None:
    builder = builder_of(TWO)
    names = [builder.allocate(tensor((2,)), name).name for name in ("x", "a b", "a-b", "")]
    assert names == ["x_1", "a_b", "a_b_1", "buffer"]


def test_parts_have_offset_size_and_access() -> None:
    buffer = builder_of(RELU).inputs[0]
    n = symbol("n")
    assert buffer.part(4) == BufferPart(buffer, 4, 4 * n - 4, Access.READ)
    assert buffer.part(4, 2).written() == BufferPart(buffer, 4, 2, Access.WRITE)
    assert buffer.part(n, 2).updated() == BufferPart(buffer, n, 2, Access.UPDATE)
    assert buffer.written() == BufferPart(buffer, 0, 4 * n, Access.WRITE)
    assert buffer.updated().access is Access.UPDATE


@pytest.mark.parametrize("offset", [1.5, "n", True, None])
def test_a_part_has_integers_or_symbolic_sizes(offset: object) -> None:
    buffer = builder_of(RELU).inputs[0]
    with pytest.raises(CodegenError) as caught:
        buffer.part(0, 1).buffer.part(offset)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"buffer `x`: has a part of an impossible offset or size; got {offset!r}, expected a size"
    )


def test_arguments_become_parts_sizes_and_c_values() -> None:
    builder = builder_of(RELU)
    (x,), (out,) = builder.inputs, builder.outputs
    arguments = (x, out.written(), symbol("n"), -1, True, 0.5, np.float64(0.25), CValue("RowMajor", "enum order"))
    builder.call_extern("toy_call", *arguments, returns_status=True)
    (call,) = builder.finish().statements
    assert call == ExternCall(
        "toy_call",
        (
            x.part(0),
            out.written(),
            symbol("n"),
            -1,
            CValue("1", "int"),
            CValue("0.5", "double"),
            CValue("0.25", "double"),
            CValue("RowMajor", "enum order"),
        ),
        returns_status=True,
    )


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("text", "'text' (str)"),
        (None, "None (NoneType)"),
        (float("nan"), "nan (float)"),
        (float("inf"), "inf (float)"),
        (2**63, "9223372036854775808 (int)"),
        (np.float32(1), "np.float32(1.0) (float32)"),
    ],
    ids=str,
)
def test_an_impossible_argument(argument: object, text: str) -> None:
    with pytest.raises(CodegenError) as caught:
        builder_of(RELU).call_extern("toy_add", argument)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"function `f`, call of `toy_add`: has an impossible argument; got {text}, "
        "expected a buffer, a part of a buffer, a size of 64 bits, a finite float or a CValue"
    )


@pytest.mark.parametrize("name", ["", "a-b", "1a", "while", "größe"])
def test_a_symbol_is_a_c_identifier(name: str) -> None:
    with pytest.raises(CodegenError) as caught:
        builder_of(RELU).call_extern(name)
    assert str(caught.value) == f"function `f`: calls a symbol with an impossible name; got {name!r}"


def test_loops_nest_and_have_distinct_indexes() -> None:
    builder = builder_of(RELU)
    (x,), (out,) = builder.inputs, builder.outputs
    with builder.loop(symbol("n")) as i, builder.loop(4) as j:
        builder.call_extern("toy_one", x.part(4 * i + j, 1), out.part(4 * i + j, 1).written(), i)
    with builder.loop(2) as k:
        builder.call_extern("toy_one", x, out.updated(), k)
    first, second = builder.finish().statements
    assert isinstance(first, Loop)
    assert isinstance(first.body[0], Loop)
    assert [first.index, first.body[0].index] == ["index_0", "index_1"]
    assert isinstance(second, Loop)
    assert second.index == "index_2"
    assert symbols_in(first) == {"n"}
    assert symbols_in(second) == frozenset()
    assert [part.buffer.name for part in parts_of(first)] == ["x", "y"]


def test_an_index_is_no_size_of_the_function() -> None:
    builder = builder_of('def f(x: R.Tensor(("index_0",))):\n    y = R.nn.relu(x)\n    return y\n')
    with builder.loop(2) as index:
        assert str(index) == "index_1"
        builder.call_extern("toy", builder.inputs[0], builder.outputs[0].written())


def test_a_loop_left_by_an_exception_adds_nothing() -> None:
    builder = builder_of(RELU)

    def interrupted() -> None:
        with builder.loop(2):
            builder.call_extern("toy", builder.outputs[0].written())
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert builder.is_unused


@pytest.mark.parametrize("extent", [2.0, "n", False], ids=repr)
def test_the_extent_of_a_loop_is_a_size(extent: object) -> None:
    with pytest.raises(CodegenError) as caught, builder_of(RELU).loop(extent):  # type: ignore[arg-type]
        pytest.fail("the loop was added")
    assert str(caught.value) == (f"function `f`: adds a loop of an impossible extent; got {extent!r}, expected a size")


def test_a_copy_reads_and_writes_whatever_the_parts_say() -> None:
    builder = builder_of(RELU)
    (x,), (out,) = builder.inputs, builder.outputs
    builder.copy(x.written(), out.updated())
    assert builder.finish().statements == (Copy(x.part(0), out.written()),)


OUTPUTS: dict[str, tuple[str, Callable[[LoweringBuilder], None], list[str]]] = {
    "a parameter": ("return y, x", lambda b: b.call_extern("toy", b.outputs[0].written()), ["x"]),
    "twice": ("return y, y", lambda b: b.call_extern("toy", b.outputs[0].written()), ["y"]),
    "a constant": (
        'return y, R.const([1.0, 2.0], "float32")',
        lambda b: b.call_extern("toy", b.outputs[0].written()),
        ["constant"],
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_results_elsewhere_are_copied(name: str) -> None:
    results, fill, sources = OUTPUTS[name]
    builder = builder_of(f"def f(x: R.Tensor((2,))):\n    y = R.nn.relu(x)\n    {results}\n")
    fill(builder)
    for lowered in (builder.finish(), builder.finish()):  # a second call adds no second copy
        copies = [statement for statement in lowered.statements if isinstance(statement, Copy)]
        assert [copy.source.buffer.name for copy in copies] == sources
        assert [copy.target for copy in copies] == [lowered.outputs[1].written()]
        assert len(lowered.statements) == 2


def test_values_inside_a_composite_have_the_buffers_outside() -> None:
    dense_relu = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
    module = R.parse(
        "def main(x: R.Tensor((2,))):\n    n = R.negative(x)\n"
        '    s = R.add(n, R.const([1.0, 2.0], "float32"))\n    r = R.nn.relu(s)\n    return r\n'
    )
    function = FuseOpsByPattern([CompositePattern("toy.add_relu", dense_relu)])(module)["main"]
    builder = LoweringBuilder(function)
    negative, composite = function.bindings
    add, relu = composite.regions[0].bindings
    assert len(composite.operands) == 1  # the constant lies inside
    assert builder.buffer(add.operands[0]) is builder.buffer(negative.result)
    assert builder.buffer(relu.result) is builder.buffer(composite.result) is builder.outputs[0]
    assert builder.buffer(add.operands[1]).role is BufferRole.CONSTANT
    inner = builder.buffer(add.result)
    assert (inner.role, inner.name) == (BufferRole.INTERMEDIATE, "s")


DENSE_BIAS = is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
MATRIX, VECTOR = (f"R.const({np.ones(shape).tolist()}, 'float32')" for shape in ((3, 3), (3,)))
OPERANDS = [
    ("x", "w", "b", ["x", "w", "b"]),
    ("x", "x", "b", ["x", "x", "b"]),
    ("y", "y", "b", ["y", "y", "b"]),
    ("x", MATRIX, VECTOR, ["x", "constant", "constant_1"]),
    ("x", "w", VECTOR, ["x", "w", "constant"]),
]


@pytest.mark.parametrize(("data", "weight", "bias", "names"), OPERANDS)
def test_each_operand_of_a_pattern_has_a_buffer(data: str, weight: str, bias: str, names: list[str]) -> None:
    module = R.parse(
        "def main(x: R.Tensor((3, 3)), w: R.Tensor((3, 3)), b: R.Tensor((3,))):\n    y = R.nn.relu(x)\n"
        f"    d = R.nn.dense({data}, {weight})\n    r = R.nn.bias_add(d, {bias})\n    return r\n"
    )
    function = FuseOpsByPattern([CompositePattern("toy.dense_bias", DENSE_BIAS)])(module)["main"]
    builder = LoweringBuilder(function)
    composite = function.bindings[-1]
    assert composite.op is COMPOSITE
    assert [buffer.name for buffer in builder.operands(composite)] == names
    dense, bias_add = composite.regions[0].bindings
    assert builder.operands(composite) == (*builder.operands(dense), builder.operands(bias_add)[1])


def test_equal_constants_share_a_buffer() -> None:
    builder = builder_of('def f(x: R.Tensor((2,))):\n    y = R.add(x, R.const([1.0, 2.0], "float32"))\n    return y\n')
    own = builder.buffer(builder.function.bindings[0].operands[1])
    assert builder.constant(np.array([1, 2], np.float32)) is own
    packed = builder.constant(np.arange(6, dtype=np.float32).reshape(2, 3).T, "packed")
    assert (packed.name, packed.shape, packed.role) == ("packed", (3, 2), BufferRole.CONSTANT)
    assert packed.constant is not None
    np.testing.assert_array_equal(builder.constants[packed.constant.digest], [[0, 3], [1, 4], [2, 5]])


def test_headers_sources_and_link_options_are_kept_once(tmp_path: Path) -> None:
    builder = LoweringBuilder(builder_of(RELU).function)
    builder.add_source("void toy(float *out);\n")
    for _ in range(2):
        builder.include("<math.h>")
        builder.include("toy.h")
        builder.include('"other.h"')
        builder.add_source("\nvoid toy(float *out);")
    builder.options = BuildOptions(opt_level=1)
    builder.link(libraries=["b", "a"], include_dirs=[tmp_path], flags=["-DX"])
    builder.link(libraries=["a", "c"], objects=[tmp_path / "toy.o"], flags=["-DX", "-DY"])
    builder.call_extern("toy", builder.outputs[0].written())
    lowered = builder.finish()
    assert lowered.declarations == (
        "#include <math.h>",
        '#include "toy.h"',
        '#include "other.h"',
        "void toy(float *out);",
    )
    assert lowered.options == BuildOptions(
        opt_level=1,
        libraries=("b", "a", "c"),
        include_dirs=(str(tmp_path),),
        extra_objects=(str(tmp_path / "toy.o"),),
        extra_flags=("-DX", "-DY"),
    )


def test_values_without_memory_have_no_buffer() -> None:
    builder = builder_of(RELU)
    with pytest.raises(CodegenError) as caught:
        builder.allocate(tensor(None), "scratch")
    assert str(caught.value) == 'function `f`: value `scratch` has no known rank; got R.Tensor(None, "float32")'
