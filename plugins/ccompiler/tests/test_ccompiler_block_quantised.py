"""Products of floats by dequantised constants of 4 or 8 bits: claims, packed weights, results and refusals.

The oracle is the product of the dequantised weights in float64.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_ccompiler.backend as ccompiler
import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_ccompiler.grouping import form_groups
from byoc_ccompiler.kernels.number_words import BlockFormat, pack_blocks
from byoc_ccompiler.kernels.quantised_products import choose
from byoc_ccompiler.kernels.quantised_tiles import ZEROS_IN_WORD, direct_tile, unpack_function
from byoc_ccompiler.quantised_weights import NUM_BITS
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_ccompiler.steps import flatten
from byoc_ccompiler.vector_unit import NO_VECTORS, VectorUnit
from byoc_core.authoring import c
from byoc_core.dtypes import to_numpy
from byoc_core.ir import FunctionBuilder, IRModule, Value, tensor
from byoc_core.ops import default_ops
from byoc_core.partitioning import FuseOpsByPattern, PartitionLog
from byoc_core.transform import evaluate_function
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, WARNINGS, assert_sum, tensor_type

NDArray = npt.NDArray[Any]
NAME = "ccompiler.block_quantised_dense"
UNITS = {"avx512": VectorUnit(64, 32), "avx2": VectorUnit(32, 16), "neon": VectorUnit(16, 32), "none": NO_VECTORS}
SPELLINGS = ("nn.dense", "matmul", "matmul of transposed weights")


@dataclass(frozen=True)
class Weights:
    """Drawn weights: integers ``(K, N)``, and scales and zero points in the shapes of ``dequantize`` along axis 0."""

    dtype: str
    block_size: int
    integers: NDArray
    scale: NDArray
    zero: NDArray

    @classmethod
    def draw(cls, depth: int, columns: int, dtype: str, block_size: int, kind: str, *, has_zeros: bool) -> Weights:
        """Draw weights; ``kind`` is ``blocks``, ``channels`` or ``tensor``."""
        rng = np.random.default_rng(depth * 1000 + columns)
        bits = NUM_BITS[dtype]
        low = 0 if dtype.startswith("uint") else -(1 << bits - 1)
        shapes = {"blocks": (-(-depth // max(1, block_size)), columns), "channels": (columns,), "tensor": ()}
        shape = shapes[kind]

        def integers(*sizes: int) -> NDArray:
            return rng.integers(low, low + (1 << bits), sizes).astype(to_numpy(dtype))

        scale = rng.uniform(-0.2, 0.2, shape).astype(np.float32)
        zero = integers(*shape) if has_zeros else np.zeros(shape, to_numpy(dtype))
        return cls(dtype, block_size if kind == "blocks" else 0, integers(depth, columns), scale, zero)

    @property
    def exact(self) -> NDArray:
        """The weights in float64."""
        scale, zero = self.scale.astype(np.float64), self.zero.astype(np.int64)
        if self.block_size:
            block = np.arange(len(self.integers)) // self.block_size
            scale, zero = scale[block], zero[block]
        exact: NDArray = (self.integers.astype(np.int64) - zero) * scale
        return exact

    def emit_weight(self, builder: FunctionBuilder, spelling: str) -> Value:
        """Emit the dequantised weights, as the right operand of a product."""
        turned = spelling != "matmul"
        along = 0 if self.block_size else 1
        arrays: list[NDArray] = [self.integers, self.scale, self.zero]
        if turned:
            arrays = [np.ascontiguousarray(array.T) for array in arrays] if self.block_size else arrays
            arrays[0] = np.ascontiguousarray(self.integers.T)
            along = 1 - along
        attrs = {"axis": along, "block_size": self.block_size}
        weight = builder.bind("dequantize", list(map(builder.const, arrays)), attrs).result
        return builder.bind("permute_dims", [weight], {"axes": (1, 0)}).result if spelling == SPELLINGS[2] else weight

    def emit(self, builder: FunctionBuilder, x: Value, spelling: str) -> Value:
        """Emit the product of ``x`` by the weights."""
        weight = self.emit_weight(builder, spelling)
        return builder.bind("nn.dense" if spelling == "nn.dense" else "matmul", [x, weight], {}).result


def _module(weights: Weights, lead: Sequence[int | str], spelling: str = "matmul") -> IRModule:
    builder = FunctionBuilder("main", ops=default_ops())
    x = builder.param("x", tensor((*lead, len(weights.integers))))
    function = builder.finish(weights.emit(builder, x, spelling))
    return IRModule({"main": function}, builder.constants)


def _build(module: IRModule, **options: object) -> byoc_core.Executable:
    flags: tuple[str, ...] = WARNINGS
    if options.get("march") == PORTABLE:
        options, flags = {"portable": True}, (*WARNINGS, "-pedantic-errors")
    return byoc_core.build(module, ["ccompiler"], options={"ccompiler": {"extra_flags": flags, **options}})


def _check(executable: byoc_core.Executable, weights: Weights, lead: Sequence[int], num_threads: int = 1) -> NDArray:
    x = np.random.default_rng(len(lead)).standard_normal((*lead, len(weights.integers))).astype(np.float32)
    actual = np.asarray(byoc_core.VirtualMachine(executable, num_threads=num_threads)["main"](x))
    exact = weights.exact
    assert_sum(actual, x.astype(np.float64) @ exact, np.abs(x).astype(np.float64) @ np.abs(exact), len(exact))
    return actual


def _composites(module: IRModule) -> list[str]:
    fused = FuseOpsByPattern(ccompiler.byoc_patterns())(module)
    return [str(b.attrs["name"]) for b in fused["main"].walk() if b.op.name == "composite"]


DRAWN = st.tuples(
    st.sampled_from(sorted(NUM_BITS)),
    st.sampled_from(["blocks", "blocks", "blocks", "channels", "tensor"]),
    st.sampled_from([16, 32, 64, 128, 5, 24]),
    st.booleans(),
)
"""Dtype, kind of scales, block size, and whether there are zero points."""


@settings(deadline=None, max_examples=30)
@given(DRAWN, st.sampled_from(sorted(UNITS)), st.integers(1, 4), st.integers(1, 150))
def test_the_tile_in_the_interpreter(drawn: tuple[str, str, int, bool], unit: str, rows: int, depth: int) -> None:
    """Small integers as factors and scales: all sums are exact."""
    dtype, kind, block_size, has_zeros = drawn
    lanes = UNITS[unit].lanes("float32")
    width = 2 * lanes if lanes > 1 else 5
    form = BlockFormat(NUM_BITS[dtype], block_size if kind == "blocks" else depth, has_zeros)
    rng = np.random.default_rng(depth)
    num_blocks, end = -(-depth // form.block_size), 1 << form.num_bits - 1
    numbers = rng.integers(-end, end, (depth, width)).astype(np.int8)
    scale = rng.integers(1, 5, (num_blocks, width)).astype(np.float32)
    zero = rng.integers(-end, end, (num_blocks, width)).astype(np.int8) * has_zeros
    x = rng.integers(-3, 4, (rows, depth)).astype(np.float32)
    block = np.arange(depth) // form.block_size
    weights = (numbers - zero[block].astype(np.int64)) * scale[block]
    words = pack_blocks(numbers, form, width)
    assert words.nbytes == num_blocks * form.block_words * 4 * width
    packed_zeros = pack_blocks(zero, BlockFormat(32 // ZEROS_IN_WORD, num_blocks, has_zeros=False), width)
    buffers: dict[str, Any] = {"words": words, "scales": scale, "zeros": packed_zeros, "x": x}
    values: dict[str, Any] = {"x_step": depth, "depth": depth, "pitch": width, "block": num_blocks - 1}
    sums = buffers["sums"] = np.zeros((rows, width), np.float32)
    _interpret(direct_tile(UNITS[unit], form, rows, width), buffers, values)
    np.testing.assert_array_equal(sums, x @ weights)
    # The last block alone, in whole words.
    first, size = (num_blocks - 1) * form.block_size, form.block_words * form.per_word
    panel = buffers["panel"] = np.zeros((size, width), np.float32)
    buffers["words"], values["num_words"] = words[0, -form.block_words :], form.block_words
    _interpret(unpack_function(UNITS[unit], form, width), buffers, values)
    np.testing.assert_array_equal(panel[: depth - first], weights[first:])


def _interpret(function: c.Function, buffers: dict[str, Any], values: dict[str, Any]) -> None:
    assert c.problems_of(function) == []
    arguments = {
        item: buffers[item.name].reshape(-1) if isinstance(item, c.Buffer) else values[item.name]
        for item in function.parameters
    }
    c.interpret(function, arguments)


@pytest.mark.parametrize("march", ["native", "x86-64-v3", "generic", PORTABLE])
@settings(deadline=None, max_examples=10)
@given(DRAWN, st.sampled_from(SPELLINGS), st.integers(1, 40), st.integers(1, 300), st.integers(1, 150))
def test_products(
    march: str, drawn: tuple[str, str, int, bool], spelling: str, rows: int, depth: int, columns: int
) -> None:
    dtype, kind, block_size, has_zeros = drawn
    weights = Weights.draw(depth, columns, dtype, block_size, kind, has_zeros=has_zeros)
    module = _module(weights, (rows,), spelling)
    assert _composites(module) == [NAME]
    executable = _build(module, march=march, opt_level=MEANING)
    executable.require_offload(1.0)
    _check(executable, weights, (rows,))


@pytest.mark.parametrize(("lead", "calls"), [((), [()]), ((2, 3), [(2, 3)]), ((0,), [(0,)]), ((197,), [(197,)])])
def test_batches_vectors_and_more_rows_than_sums_at_hand(lead: tuple[int, ...], calls: list[tuple[int, ...]]) -> None:
    weights = Weights.draw(100, 70, "uint4", 32, "blocks", has_zeros=True)
    executable = _build(_module(weights, lead))
    executable.require_offload(1.0 if lead != (0,) else 0.0)
    for sizes in calls:
        _check(executable, weights, sizes)


@pytest.mark.parametrize("march", ["native", "x86-64-v3", PORTABLE])
@pytest.mark.parametrize("block_size", [16, 100, 600])
def test_symbolic_rows(march: str, block_size: int) -> None:
    """Few rows and many rows in the same function; the last of many rows are few."""
    weights = Weights.draw(1230, 35, "int4", block_size, "blocks", has_zeros=True)
    executable = _build(_module(weights, ("b", "n")), march=march)
    executable.require_offload(1.0)
    for lead in ((1, 1), (1, 2), (3, 1), (2, 2), (1, 5), (5, 39), (0, 3)):
        _check(executable, weights, lead)


def test_a_row_has_the_same_bits_on_any_number_of_threads() -> None:
    weights = Weights.draw(1024, 1030, "uint4", 32, "blocks", has_zeros=True)
    for rows in (1, 40):
        executable = _build(_module(weights, (rows,)))
        results = [_check(executable, weights, (rows,), num_threads) for num_threads in (1, 2)]
        np.testing.assert_array_equal(results[0], results[1])


@pytest.mark.parametrize("dtype", sorted(NUM_BITS))
def test_the_artifact_holds_packed_weights_alone(dtype: str, tmp_path: Path) -> None:
    depth, columns = 512, 768
    weights = Weights.draw(depth, columns, dtype, 64, "blocks", has_zeros=True)
    executable = _build(_module(weights, (1,)))
    packed_nbytes = depth * columns * NUM_BITS[dtype] // 8
    blocks = depth // 64 * columns
    arrays = [np.asarray(array) for array in executable.constants.values()]
    assert sorted(array.nbytes for array in arrays) == [blocks, 4 * blocks, packed_nbytes]
    executable.save(tmp_path / "model.byoc")
    assert (tmp_path / "model.byoc").stat().st_size < packed_nbytes + 5 * blocks + 50_000
    loaded = byoc_core.load(tmp_path / "model.byoc", allow_native=True)
    _check(loaded, weights, (1,))


def test_weights_with_all_zero_points_0_have_no_zero_points() -> None:
    """Numbers without a sign are stored with half of their range subtracted, and so are their zero points."""
    for dtype, zero in (("int4", 0), ("uint4", 8), ("int8", 0), ("uint8", 128)):
        drawn = Weights.draw(64, 32, dtype, 32, "blocks", has_zeros=False)
        weights = Weights(dtype, 32, drawn.integers, drawn.scale, np.full_like(drawn.zero, zero))
        executable = _build(_module(weights, (1,)))
        assert len(executable.constants) + executable.get_source().count("static const float constant_") == 2
        _check(executable, weights, (1,))


def test_the_ops_after_the_product_are_its_epilogue() -> None:
    weights = Weights.draw(96, 80, "int4", 32, "blocks", has_zeros=False)
    for rows in (1, 20):
        builder = FunctionBuilder("main", ops=default_ops())
        x = builder.param("x", tensor((rows, 96)))
        bias = np.linspace(-1, 1, 80, dtype=np.float32)
        total = builder.bind("add", [weights.emit(builder, x, "matmul"), builder.const(bias)], {}).result
        function = builder.finish(builder.bind("nn.relu", [total], {}).result)
        module = IRModule({"main": function}, builder.constants)
        assert _composites(module) == [NAME]
        prepared = prepare_regions([function], builder.constants, FAMILIES)
        groups = form_groups(flatten(prepared["main"])[0], FAMILIES)
        assert [[step.op for step in group.steps] for group in groups] == [[NAME, "add", "nn.relu"]]
        executable = _build(module)
        executable.require_offload(1.0)
        array = np.random.default_rng(0).standard_normal((rows, 96)).astype(np.float32)
        exact = np.maximum(array.astype(np.float64) @ weights.exact + bias, 0)
        magnitude = np.abs(array).astype(np.float64) @ np.abs(weights.exact) + np.abs(bias)
        actual = np.asarray(byoc_core.VirtualMachine(executable)["main"](array))
        assert_sum(actual, exact, magnitude, 97)


@pytest.mark.parametrize("rows", [1, 20])
def test_infinities_and_nans_reach_the_results(rows: int) -> None:
    weights = Weights.draw(70, 20, "uint4", 16, "blocks", has_zeros=True)
    executable = _build(_module(weights, (rows,)))
    vm = byoc_core.VirtualMachine(executable)
    for value in (np.inf, -np.inf, np.nan):
        x = np.ones((rows, 70), np.float32)
        x[0, 69] = value
        with np.errstate(invalid="ignore"):
            expected = x.astype(np.float64) @ weights.exact
        actual = np.asarray(vm["main"](x))
        np.testing.assert_array_equal(np.isnan(actual[0]), np.isnan(expected[0]))
        np.testing.assert_array_equal(actual[0][np.isinf(actual[0])], expected[0][np.isinf(expected[0])])
        assert np.isfinite(actual[1:]).all()


def test_a_model_as_exported() -> None:
    """Blocks along the rows of ``DequantizeLinear``, with Gemm and MatMul."""
    onnx = pytest.importorskip("onnx")
    weights = Weights.draw(64, 48, "uint4", 32, "blocks", has_zeros=True)
    rows = onnx.helper.make_tensor("w", onnx.TensorProto.UINT4, (64, 48), weights.integers.astype(int).reshape(-1))
    zeros = onnx.helper.make_tensor("z", onnx.TensorProto.UINT4, (2, 48), weights.zero.astype(int).reshape(-1))
    nodes = [
        onnx.helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=32),
        onnx.helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [value("x", onnx.TensorProto.FLOAT, ["n", 64])],
        [value("y", onnx.TensorProto.FLOAT, ["n", 48])],
        [rows, zeros, onnx.numpy_helper.from_array(weights.scale, "s")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    executable = _build(byoc_core.from_onnx(model))
    executable.require_offload(1.0)
    _check(executable, weights, (3,))


def _refusals() -> Iterator[tuple[str, IRModule]]:
    """Yield modules with a product by dequantised weights not taken, and a part of the reason."""
    for dtype, text in (("int16", "weights of int16 stay packed in no kernel"), ("int2", "weights of int2")):
        drawn = Weights.draw(8, 4, "int4", 4, "blocks", has_zeros=False)
        integers = np.asarray(np.ones((8, 4)), to_numpy(dtype))
        yield text, _module(Weights(dtype, 4, integers, drawn.scale, np.zeros((2, 4), to_numpy(dtype))), (2,))
    for scale, text in (
        (np.ones((2, 4), np.float16), "the factors are float16, not float32"),
        (np.full((2, 4), 1e37, np.float32), "a scale makes weights beyond the range of float32"),
        (np.full((2, 4), np.nan, np.float32), "a scale makes weights beyond the range of float32"),
    ):
        builder = FunctionBuilder("main", ops=default_ops())
        x = builder.param("x", tensor((2, 8), scale.dtype.name))
        weights = Weights("int4", 4, drawn.integers, scale, drawn.zero)
        yield text, IRModule({"main": builder.finish(weights.emit(builder, x, "matmul"))}, builder.constants)
    for shape, attrs in (((8,), {"axis": 0}), ((8, 2), {"axis": 1, "block_size": 2})):
        builder = FunctionBuilder("main", ops=default_ops())
        x = builder.param("x", tensor((2, 8)))
        operands = (drawn.integers, np.ones(shape, np.float32), np.zeros(shape, to_numpy("int4")))
        weight = builder.bind("dequantize", list(map(builder.const, operands)), attrs).result
        function = builder.finish(builder.bind("matmul", [x, weight], {}).result)
        yield "the scales change along the sums without blocks", IRModule({"main": function}, builder.constants)


@pytest.mark.parametrize("number", range(7))
def test_refusals_state_a_reason(number: int) -> None:
    text, module = next(itertools.islice(_refusals(), number, None))
    assert _composites(module) == []
    log = PartitionLog()
    FuseOpsByPattern(ccompiler.byoc_patterns(), log=log)(module)
    root = module["main"].bindings[-1].result.name
    reasons = [refusal.rejection.text for refusal in log.refusals("main", root)]
    assert any(text in reason for reason in reasons), reasons
    array = np.ones((2, 8), tensor_type(module["main"].params[0]).dtype)
    expected = evaluate_function(module, "main", [array])[0]
    actual = byoc_core.VirtualMachine(_build(module))["main"](array)
    np.testing.assert_allclose(actual, expected, rtol=1e-3 if expected.dtype == np.float16 else 1e-5)


def test_quantised_factors_stay_products_of_bytes() -> None:
    """Weights of 4 bits beside factors of 8 bits: the product is one of integers, and exact."""
    builder = FunctionBuilder("main", ops=default_ops())
    integers = builder.param("x", tensor((5, 64), "uint8"))
    x = builder.bind("dequantize", [integers, builder.const(np.float32(0.5)), builder.const(np.uint8(3))], {}).result
    weights = Weights.draw(64, 32, "int4", 0, "channels", has_zeros=False)
    function = builder.finish(weights.emit(builder, x, "matmul"))
    prepared = prepare_regions([function], builder.constants, FAMILIES)
    assert "ccompiler.byte_product" in [binding.op.name for binding in prepared["main"].bindings]
    executable = _build(IRModule({"main": function}, builder.constants))
    executable.require_offload(1.0)
    array = np.random.default_rng(0).integers(0, 256, (5, 64)).astype(np.uint8)
    exact = (array.astype(np.float64) - 3) * 0.5 @ weights.exact
    actual = np.asarray(byoc_core.VirtualMachine(executable)["main"](array))
    np.testing.assert_allclose(actual, exact, rtol=2.0**-22)


def test_weights_read_by_other_ops_are_folded() -> None:
    """No kernel reads numbers of 4 bits elementwise."""
    builder = FunctionBuilder("main", ops=default_ops())
    x, y = builder.param("x", tensor((2, 64))), builder.param("y", tensor((64, 32)))
    weights = Weights.draw(64, 32, "int4", 32, "blocks", has_zeros=False)
    weight = weights.emit_weight(builder, "matmul")
    product = builder.bind("matmul", [x, weight], {}).result
    function = builder.finish(product, builder.bind("add", [y, weight], {}).result)
    prepared = prepare_regions([function], builder.constants, FAMILIES)
    assert [binding.op.name for binding in prepared["main"].bindings] == [NAME, "add"]


@pytest.mark.parametrize("unit", sorted(UNITS))
@pytest.mark.parametrize("block_size", [5, 16, 32, 100, 128, 4096])
def test_schedules_unpack_whole_words_or_whole_blocks(unit: str, block_size: int) -> None:
    for num_bits, columns, rows in itertools.product((4, 8), (1, 80, 4096), (1, 7, 500)):
        form = BlockFormat(num_bits, block_size, has_zeros=False)
        schedule = choose(rows, columns, form, UNITS[unit])
        divisor = form.block_size if schedule.part >= form.block_size else form.per_word
        assert schedule.part % divisor == 0
        assert schedule.part <= 64
        width = schedule.vectors * UNITS[unit].lanes("float32")
        assert -(-columns // width) * width < columns + max(width, 64)
