"""Parts of transformers as exported by PyTorch, with dynamic sizes: the symbols survive, the numbers are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule, TensorType, Var, tensor
from byoc_core.ir.verifier import verify
from byoc_core.transform import Sequential, default_passes
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.accuracy import Accuracy, relative_error
from core.tests.frontend.conftest import Array

pytestmark = pytest.mark.lowest

Inputs = Mapping[str, tuple[int, Sequence[Any]]]

_FLOAT, _INT64, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_HEADS, _HEAD_SIZE, _MAX_POSITIONS = 2, 4, 16
_HIDDEN = _HEADS * _HEAD_SIZE
_LOWEST = np.array(np.finfo(np.float32).min, np.float32)


class Graph:
    """A writer of nodes in an exporter's style: every number a separate constant, every size from a ``Shape``."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def op(self, op_type: str, *inputs: str, name: str = "", **attrs: Any) -> str:
        output = name or f"{op_type}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=f"/{output}", **attrs))
        return output

    def const(self, value: npt.ArrayLike, dtype: npt.DTypeLike = np.int64) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def size(self, value: str, axis: int) -> str:
        """``x.size(axis)``: ``Gather(Shape(x), axis)``, a scalar."""
        return self.op("Gather", self.op("Shape", value), self.const(axis), axis=0)

    def shape(self, *sizes: str | int) -> str:
        """A shape: each size unsqueezed, then all joined."""
        parts = [
            self.op("Unsqueeze", size, self.const([0])) if isinstance(size, str) else self.const([size])
            for size in sizes
        ]
        return self.op("Concat", *parts, axis=0)

    def expand(self, value: str, *sizes: str | int) -> str:
        """``x.expand(sizes)`` with -1 for unchanged sizes: ``Where(Equal(shape, -1), ones, shape)`` in between."""
        wanted = self.shape(*sizes)
        rank = self.op("ConstantOfShape", self.const([len(sizes)]), value=_scalar_tensor(1))
        minus_one = self.op("Mul", rank, self.const(-1))
        return self.op("Expand", value, self.op("Where", self.op("Equal", wanted, minus_one), rank, wanted))

    def linear(self, value: str, columns: int, seed: int) -> str:
        weight = np.random.default_rng(seed).normal(size=(_HIDDEN, columns)) / 4
        return self.op("MatMul", value, self.const(weight, np.float32))

    def heads(self, value: str) -> str:
        """``x.view(batch, length, heads, -1).transpose(1, 2)``."""
        target = self.shape(self.size(value, 0), self.size(value, 1), _HEADS, -1)
        return self.op("Transpose", self.op("Reshape", value, target), perm=[0, 2, 1, 3])

    def model(self, inputs: Inputs, outputs: Sequence[str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "transformer",
            [helper.make_tensor_value_info(name, dtype, dims) for name, (dtype, dims) in inputs.items()],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _scalar_tensor(value: int) -> onnx.TensorProto:
    return helper.make_tensor("value", _INT64, [1], [value])


def _gpt2_attention() -> onnx.ModelProto:
    """A block of GPT-2 with a cache: positions from Range, the causal mask sliced out of a buffer, scores scaled by
    the root of the head's size, heads joined again.
    """
    g = Graph()
    past, seq = g.size("past_key", 2), g.size("input", 1)
    total = g.op("Add", past, seq)
    positions = g.op("Range", past, total, g.const(1))
    positions = g.op("Unsqueeze", positions, g.const([0]), name="positions")
    table = g.const(np.random.default_rng(9).normal(size=(_MAX_POSITIONS, _HIDDEN)), np.float32)
    hidden = g.op("Add", "input", g.op("Gather", table, positions), name="hidden")

    parts = [f"qkv_{index}" for index in range(3)]
    g.nodes.append(helper.make_node("Split", [g.linear(hidden, 3 * _HIDDEN, 1), g.const([_HIDDEN] * 3)], parts, axis=2))
    query, key, value = (g.heads(part) for part in parts)
    key = g.op("Concat", "past_key", key, axis=2, name="key")
    value = g.op("Concat", "past_value", value, axis=2, name="value")

    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    root = g.op("Sqrt", g.op("Cast", g.size(value, 3), to=_FLOAT))
    scores = g.op("Div", scores, root, name="scores")
    length = g.size(key, 2)
    first = g.op("Sub", length, g.size(query, 2))
    buffer = g.const(np.tril(np.ones((1, 1, _MAX_POSITIONS, _MAX_POSITIONS))), np.bool_)
    rows = g.op("Slice", buffer, g.shape(first), g.shape(length), g.const([2]), g.const([1]))
    mask = g.op("Slice", rows, g.const([0]), g.shape(length), g.const([3]), g.const([1]), name="mask")
    probabilities = g.op("Softmax", g.op("Where", mask, scores, g.const(_LOWEST, np.float32)), axis=-1)

    joined = g.op("Transpose", g.op("MatMul", probabilities, value), perm=[0, 2, 1, 3])
    target = g.shape(g.size(joined, 0), g.size(joined, 1), _HIDDEN)
    g.op("Add", "input", g.linear(g.op("Reshape", joined, target), _HIDDEN, 2), name="output")
    cache = (_FLOAT, ["batch", _HEADS, "past", _HEAD_SIZE])
    inputs: Inputs = {"input": (_FLOAT, ["batch", "seq", _HIDDEN]), "past_key": cache, "past_value": cache}
    return g.model(inputs, ["output", "key", "value", "scores", "mask", "positions"])


def _bert_embeddings_and_mask() -> onnx.ModelProto:
    """BERT's input: buffered ids sliced and expanded, the attention mask made additive and broadcast to the scores."""
    g = Graph()
    batch, seq = g.size("ids", 0), g.size("ids", 1)
    buffer = g.const(np.arange(_MAX_POSITIONS)[None])
    positions = g.op("Slice", buffer, g.const([0]), g.shape(seq), g.const([1]), g.const([1]), name="positions")
    types = g.const(np.zeros((1, _MAX_POSITIONS)))
    types = g.op("Slice", types, g.const([0]), g.shape(seq), g.const([1]), g.const([1]))
    types = g.expand(types, batch, seq)
    rng = np.random.default_rng(3)
    words, places, kinds = (g.const(rng.normal(size=(count, _HIDDEN)), np.float32) for count in (10, _MAX_POSITIONS, 2))
    hidden = g.op("Add", g.op("Gather", words, "ids"), g.op("Gather", kinds, types))
    hidden = g.op("Add", hidden, g.op("Gather", places, positions), name="hidden")

    mask = g.op("Unsqueeze", g.op("Unsqueeze", "attention_mask", g.const([1])), g.const([2]))
    mask = g.expand(g.op("Cast", mask, to=_FLOAT), batch, 1, seq, seq)
    inverted = g.op("Sub", g.const(1, np.float32), mask)
    additive = g.op("Where", g.op("Cast", inverted, to=_BOOL), g.const(_LOWEST, np.float32), inverted, name="additive")
    query = g.heads(hidden)
    scores = g.op("MatMul", query, g.op("Transpose", query, perm=[0, 1, 3, 2]))
    probabilities = g.op("Softmax", g.op("Add", scores, additive), axis=-1, name="probabilities")
    context = g.op("Transpose", g.op("MatMul", probabilities, query), perm=[0, 2, 1, 3])
    g.op("Reshape", context, g.shape(g.size(context, 0), -1, _HIDDEN), name="output")
    inputs = {"ids": (_INT64, ["batch", "seq"]), "attention_mask": (_INT64, ["batch", "seq"])}
    return g.model(inputs, ["output", "hidden", "additive", "probabilities", "positions"])


def _causal_mask_from_ranges() -> onnx.ModelProto:
    """Llama's mask in PyTorch's newer style: two ranges compared, joined with the padding mask, expanded per head; and
    rotary angles of positions starting behind the cache.
    """
    g = Graph()
    past, seq = g.size("past_key", 2), g.size("input", 1)
    total = g.op("Add", past, seq)
    cache_position = g.op("Range", past, total, g.const(1), name="cache_position")
    keys = g.op("Range", g.const(0), total, g.const(1))
    rows = g.op("Reshape", cache_position, g.const([-1, 1]))
    causal = g.op("LessOrEqual", g.op("Unsqueeze", keys, g.const([0])), rows)
    causal = g.expand(g.op("Unsqueeze", causal, g.const([0, 1])), g.size("input", 0), 1, -1, -1)
    padding = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=_BOOL), g.const([1, 2]))
    mask = g.op("And", causal, padding, name="mask")

    inverse = g.const(1 / 10.0 ** (np.arange(_HEAD_SIZE // 2) / 2), np.float32)
    inverse = g.expand(g.op("Reshape", inverse, g.const([1, -1, 1])), g.size("input", 0), -1, 1)
    places = g.op("Cast", g.op("Reshape", cache_position, g.const([1, 1, -1])), to=_FLOAT)
    angles = g.op("Transpose", g.op("MatMul", inverse, places), perm=[0, 2, 1])
    angles = g.op("Unsqueeze", g.op("Concat", angles, angles, axis=-1), g.const([1]), name="angles")

    query = g.heads("input")
    half = g.op("Div", g.size(query, 3), g.const(2))
    end = g.const([np.iinfo(np.int64).max])
    left = g.op("Slice", query, g.const([0]), g.shape(half), g.const([3]), g.const([1]))
    right = g.op("Slice", query, g.shape(half), end, g.const([3]), g.const([1]))
    rotated = g.op("Concat", g.op("Neg", right), left, axis=-1)
    query = g.op("Add", g.op("Mul", query, g.op("Cos", angles)), g.op("Mul", rotated, g.op("Sin", angles)))
    key = g.op("Concat", "past_key", query, axis=2, name="key")
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    g.op("Softmax", g.op("Where", mask, scores, g.const(_LOWEST, np.float32)), axis=-1, name="output")
    inputs: Inputs = {
        "input": (_FLOAT, ["batch", "seq", _HIDDEN]),
        "past_key": (_FLOAT, ["batch", _HEADS, "past", _HEAD_SIZE]),
        "attention_mask": (_INT64, ["batch", "past + seq"]),
    }
    return g.model(inputs, ["output", "key", "mask", "angles", "cache_position"])


def _feeds(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Array]:
    rng = np.random.default_rng(sum(sizes.values()))
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        shape = [dim.dim_value or sum(sizes[name] for name in dim.dim_param.split(" + ")) for dim in dims]
        is_float = value.type.tensor_type.elem_type == _FLOAT
        feeds[value.name] = rng.normal(size=shape).astype(np.float32) if is_float else rng.integers(0, 2, shape)
    return feeds


_SIZES = ({"batch": 1, "seq": 1, "past": 0}, {"batch": 2, "seq": 3, "past": 4}, {"batch": 3, "seq": 1, "past": 6})
_TOTAL = "past + seq"

_MODELS: dict[str, tuple[Callable[[], onnx.ModelProto], list[TensorType], set[str]]] = {
    "gpt2": (
        _gpt2_attention,
        [
            tensor(("batch", "seq", _HIDDEN)),
            tensor(("batch", _HEADS, _TOTAL, _HEAD_SIZE)),
            tensor(("batch", _HEADS, _TOTAL, _HEAD_SIZE)),
            tensor(("batch", _HEADS, "seq", _TOTAL)),
            tensor((1, 1, "seq", _TOTAL), "bool"),
            tensor((1, "seq"), "int64"),
        ],
        {"arange"},
    ),
    "bert": (
        _bert_embeddings_and_mask,
        [
            tensor(("batch", "seq", _HIDDEN)),
            tensor(("batch", "seq", _HIDDEN)),
            tensor(("batch", 1, "seq", "seq")),
            tensor(("batch", _HEADS, "seq", "seq")),
            tensor((1, "seq"), "int64"),
        ],
        set(),
    ),
    "llama": (
        _causal_mask_from_ranges,
        [
            tensor(("batch", _HEADS, "seq", _TOTAL)),
            tensor(("batch", _HEADS, _TOTAL, _HEAD_SIZE)),
            tensor(("batch", 1, "seq", _TOTAL), "bool"),
            tensor(("batch", 1, "seq", _HEAD_SIZE)),
            tensor(("seq",), "int64"),
        ],
        {"arange"},
    ),
}
_SIZE_OPS = {"arange", "shape_of", "size", "shape_to_tensor"}


def _check_right(results: Sequence[Any], peers: Sequence[Any], exacts: Sequence[Any]) -> None:
    """Compare with ONNX Runtime: integers and bools exactly, floats by the rule of ``benchmarks.zoo.accuracy``."""
    for result, peer, exact in zip(results, peers, exacts, strict=True):
        assert result.dtype == peer.dtype
        assert result.shape == peer.shape
        if result.dtype.kind == "f":
            errors = (relative_error(result, exact), relative_error(peer, exact))
            accuracy = Accuracy(*errors, distance=relative_error(result, peer), difference=np.inf)
            assert accuracy.is_right, str(accuracy)
        else:
            np.testing.assert_array_equal(result, peer)


@pytest.mark.parametrize("name", sorted(_MODELS))
def test_the_sizes_survive_a_transformer(name: str, run: Callable[..., Sequence[Array]]) -> None:
    build, types, size_ops = _MODELS[name]
    model = build()
    module = verify(byoc_core.from_onnx(model))
    assert list(module["main"].result_types) == types
    assert {b.op.name for b in module["main"].bindings} & _SIZE_OPS == size_ops
    symbols = {s for b in module["main"].bindings for r in b.results for s in _symbols(r)}
    assert symbols <= {"batch", "seq", "past"}
    prepared = Sequential(default_passes())(module)
    assert list(prepared["main"].result_types) == types
    for sizes in _SIZES:
        feeds = _feeds(model, sizes)
        peers, exacts = run(model, feeds), run(module, feeds, exact=True)
        _check_right(run(module, feeds), peers, exacts)
        _check_right(run(prepared, feeds), peers, exacts)


def _symbols(value: Var) -> frozenset[str]:
    assert isinstance(value.type, TensorType)
    for dim in value.type.shape or ():
        assert "//" not in str(dim)
        assert "broadcast" not in str(dim)
        assert "min" not in str(dim)
    return value.type.symbols


@pytest.mark.parametrize("name", sorted(_MODELS))
def test_the_host_runs_a_transformer_at_all_sizes(name: str, run: Callable[..., Sequence[Array]]) -> None:
    model = _MODELS[name][0]()
    module = byoc_core.from_onnx(model)
    machine = byoc_core.VirtualMachine(byoc_core.build(module, backends=[]))
    for sizes in _SIZES:
        feeds = _feeds(model, sizes)
        results = machine["main"](*feeds.values())
        assert isinstance(results, tuple)
        _check_right(results, run(model, feeds), run(module, feeds, exact=True))


def test_a_position_beyond_the_table_is_an_error(run: Callable[..., Sequence[Array]]) -> None:
    model = _gpt2_attention()
    module: IRModule = byoc_core.from_onnx(model)
    with pytest.raises(ExecutionError) as caught:
        run(module, _feeds(model, {"batch": 1, "seq": 1, "past": _MAX_POSITIONS}))
    assert str(caught.value) == "op `take`: an index lies outside axis 0; got 16, expected -16 to 15"
