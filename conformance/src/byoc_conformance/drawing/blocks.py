"""Blocks of networks: an op with typical successors, drawn pairwise.

Backends fuse these ops into a single kernel. Each block is a choice of: the root op, the dtype, the source of the
weights, the operand joined with the result, the activation, the order of joining and activation, the reader of the
result, and whether a second chain differs in a single number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dims import Dim, symbol
from byoc_core.dtypes import to_numpy
from byoc_core.ir import Constant, FunctionBuilder, OpRegistry, TensorType, Value

from byoc_conformance.drawing.graphs import DrawnGraph
from byoc_conformance.drawing.pairwise import Levels, cover_pairs
from byoc_conformance.drawing.seeds import generator_of

__all__ = ["BLOCK_ROOTS", "BlockDraft", "draw_blocks"]

NDArray = npt.NDArray[Any]

_MAX_NARROW_ELEMENTS = 20_000
"""The largest operand of narrow floats, in elements: the reference kernels are slow on large narrow products."""
_ROWS = (2, 5)
"""The first size in each call, if symbolic."""


@dataclass(frozen=True, slots=True)
class _Root:
    """The start of a block.

    Attributes:
        shape: of the operand; the first size may be a symbol.
        build: returns the result of the root op.
        channel: the channel axis of the result, from the end.
    """

    shape: tuple[int, ...]
    build: Callable[[BlockDraft, Value], Value]
    channel: int = -1


class BlockDraft:
    """A growing block, with the inputs of all calls.

    Args:
        name: of the function.
        ops: the registry.
        generator: of all random numbers.
        dtype: of the numbers.
        is_symbolic: whether the first sizes of parameters are a symbol, with another size in each call.
        takes_weights: whether weights are parameters, not constants.
    """

    def __init__(
        self,
        name: str,
        ops: OpRegistry,
        generator: np.random.Generator,
        *,
        dtype: str = "float32",
        is_symbolic: bool = False,
        takes_weights: bool = False,
    ) -> None:
        self._builder = FunctionBuilder(name, ops=ops)
        self._generator = generator
        self._is_symbolic = is_symbolic
        self._takes_weights = takes_weights
        self.dtype = dtype
        self._weight_seed = int(generator.integers(2**31))
        self._num_weights = 0
        self._calls: list[list[NDArray]] = [[] for _ in _ROWS]

    def param(self, *shape: int, dtype: str | None = None, follows_rows: bool = True) -> Value:
        """Return a new parameter; the first size is the row symbol if the block has symbolic rows."""
        element_type = dtype or self.dtype
        is_symbolic = self._is_symbolic and follows_rows and len(shape) > 1
        dims: tuple[Dim, ...] = (symbol("n"), *shape[1:]) if is_symbolic else shape
        for rows, inputs in zip(_ROWS, self._calls, strict=True):
            inputs.append(self.array((rows, *shape[1:]) if is_symbolic else shape, element_type))
        return self._builder.param(f"x{len(self._calls[0])}", TensorType(dims, element_type))

    def weights(self, *shape: int) -> Value:
        """Return numbers like learned weights: of both signs, smaller for longer sums."""
        if self._takes_weights:
            return self.param(*shape, follows_rows=False)
        self._num_weights += 1
        generator = np.random.default_rng([self._weight_seed, self._num_weights])
        numbers = generator.standard_normal(shape) / np.sqrt(np.prod(shape[1:], initial=1.0))
        return self.const(numbers.astype(to_numpy(self.dtype)))

    def restart_weights(self) -> None:
        """Restart the sequence of weights: the next weights equal the first."""
        self._num_weights = 0

    def const(self, array: npt.ArrayLike) -> Constant:
        """Return a constant."""
        return self._builder.const(np.asarray(array))

    def array(self, shape: tuple[int, ...], dtype: str) -> NDArray:
        """Return random numbers: floats, or any byte values."""
        if dtype in {"int8", "uint8"}:
            limits = np.iinfo(dtype)
            return self._generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        return np.asarray(self._generator.standard_normal(shape)).astype(to_numpy(dtype))

    def op(self, name: str, *operands: Value, **attrs: Any) -> Value:
        """Return the result of an op."""
        return self._builder.bind(name, operands, attrs).result

    def shape(self, value: Value) -> tuple[int, ...]:
        """Return the sizes of a value in the first call."""
        assert isinstance(value.type, TensorType)
        return tuple(size if isinstance(size, int) else _ROWS[0] for size in value.type.shape or ())

    def finish(self, *results: Value) -> DrawnGraph:
        """Return the block; the last call has the inputs of the first call, with a NaN in the first input."""
        return DrawnGraph(self._builder.finish(*results), self._builder.constants, [*self._calls, self._call_of_nan()])

    def _call_of_nan(self) -> list[NDArray]:
        first, *rest = self._calls[0]
        if not np.issubdtype(first.dtype, np.integer):
            first = first.copy()
            first.reshape(-1)[first.size // 3] = np.nan
        return [first, *rest]


def _convolution(weight: tuple[int, ...], **attrs: Any) -> Callable[[BlockDraft, Value], Value]:
    name = f"nn.conv{len(weight) - 2}d"
    return lambda draft, x: draft.op(name, x, draft.weights(*weight), **attrs)


_BLOCK: Mapping[str, _Root] = {
    "dense": _Root((2, 16), lambda draft, x: draft.op("nn.dense", x, draft.weights(8, 16))),
    "dense of a batch": _Root((2, 4, 16), lambda draft, x: draft.op("nn.dense", x, draft.weights(8, 16))),
    "large dense": _Root((2, 16, 1024), lambda draft, x: draft.op("nn.dense", x, draft.weights(1024, 1024))),
    "matmul": _Root((3, 4, 16), lambda draft, x: draft.op("matmul", x, draft.weights(16, 9))),
    "convolution": _Root((2, 16, 8, 8), _convolution((8, 16, 3, 3), padding=(1, 1, 1, 1)), -3),
    "convolution to few channels": _Root((1, 3, 16, 16), _convolution((2, 3, 3, 3), padding=(1, 1, 1, 1)), -3),
    "strided convolution": _Root((2, 16, 9, 8), _convolution((16, 16, 3, 3), strides=(2, 1), padding=(0, 1, 2, 1)), -3),
    "grouped convolution": _Root((2, 8, 7, 9), _convolution((6, 4, 1, 3), groups=2), -3),
    "convolution, channels last": _Root(
        (1, 14, 14, 64), _convolution((64, 64, 3, 3), padding=(0, 1, 2, 1), data_layout="NHWC")
    ),
    "depthwise convolution, channels last": _Root(
        (2, 10, 40, 32), _convolution((32, 1, 3, 3), groups=32, padding=(1, 1, 1, 1), data_layout="NHWC")
    ),
    "pool": _Root((2, 4, 8, 8), lambda draft, x: draft.op("nn.max_pool2d", x, pool_size=(2, 2)), -3),
    "softmax": _Root((2, 5, 17), lambda draft, x: draft.op("nn.softmax", x)),
    "layer norm": _Root(
        (2, 5, 16), lambda draft, x: draft.op("nn.layer_norm", x, draft.weights(16), draft.weights(16))
    ),
}
BLOCK_ROOTS = tuple(_BLOCK)
"""The names of the roots."""

_Activation = tuple[str, Mapping[str, Any]]
_ACTIVATIONS: Mapping[str, _Activation] = {
    "relu": ("nn.relu", {}),
    "leaky relu": ("nn.leaky_relu", {"alpha": 0.125}),
    "gelu": ("nn.gelu", {}),
    "sigmoid": ("sigmoid", {}),
    "clip": ("clip", {"min": -0.5, "max": 0.75}),
    "clip at the top": ("clip", {"max": 0.5}),
}
_SECOND_CHAIN_NUMBERS: Mapping[str, Mapping[str, Any]] = {
    "leaky relu": {"alpha": 0.25},
    "clip": {"min": -0.25, "max": 0.5},
    "clip at the top": {"max": 0.25},
}
"""The differing numbers of a second chain."""

_FACTORS: Mapping[str, tuple[Any, ...]] = {
    "root": BLOCK_ROOTS,
    "dtype": ("float32", "bfloat16", "float16"),
    "weights": ("constants", "parameters"),
    "joined": (
        *("add channel", "add row", "add row of each", "add all", "multiply row"),
        *("subtract from all", "maximum number", "add nothing"),
    ),
    "activation": ("none", *_ACTIVATIONS),
    "order": ("activation last", "activation first"),
    "reader": ("nothing", "the root's result too", "flat dense", "permuted sum", "a second chain"),
    "rows": ("fixed", "symbol"),
}


_PLAIN: Levels = {
    "root": "convolution",
    "dtype": "float32",
    "weights": "constants",
    "joined": "add nothing",
    "activation": "none",
    "order": "activation last",
    "reader": "nothing",
    "rows": "fixed",
}
_FUSED: tuple[Levels, ...] = (
    {"activation": "leaky relu", "reader": "a second chain"},
    {"activation": "clip", "reader": "a second chain", "joined": "add channel"},
    {"reader": "flat dense"},
    {"activation": "relu", "joined": "add all"},
    {"joined": "add row"},
    {"root": "convolution to few channels"},
    {"root": "dense", "dtype": "bfloat16", "activation": "relu", "order": "activation first", "joined": "multiply row"},
    {"root": "dense", "activation": "gelu", "joined": "add row"},
    {"root": "large dense", "joined": "add row of each"},
    {"root": "dense of a batch", "joined": "add row of each"},
    {"root": "matmul", "joined": "add row of each"},
    {"root": "matmul", "joined": "add row", "activation": "leaky relu", "reader": "a second chain"},
)
"""Blocks of three choices and more, fused by many backends; unnamed factors are as in the plain block."""


def draw_blocks(ops: OpRegistry, root: str, seed: int, *, is_dynamic: bool) -> Iterator[DrawnGraph]:
    """Yield the blocks of a root; the blocks of all roots together cover every pair of choices.

    The rows of all roots are drawn together, so a new level or a new root may change the blocks of every root. The
    roots are cases of ``L2-blocks``.

    Args:
        ops: the registry.
        root: a name in :data:`BLOCK_ROOTS`.
        seed: of all random numbers.
        is_dynamic: whether the number of rows may be a symbol.
    """
    for number, levels in enumerate(_rows(seed, is_dynamic)):
        if levels["root"] == root:
            yield _draw(f"block_{number}", ops, generator_of(seed, "block", number), levels)


@cache
def _rows(seed: int, is_dynamic: bool) -> tuple[Levels, ...]:
    factors = {**_FACTORS, "rows": _FACTORS["rows"][: 1 + is_dynamic]}
    rows = cover_pairs(factors, lambda levels: levels if _is_compatible(levels) else None, generator_of(seed, "blocks"))
    return (*({**_PLAIN, **changes} for changes in _FUSED), *rows)


def _is_compatible(levels: Levels) -> bool:
    root = _BLOCK[levels["root"]]
    if levels["reader"] == "a second chain" and levels["activation"] not in _SECOND_CHAIN_NUMBERS:
        return False
    if levels["reader"] == "flat dense" and levels["rows"] == "symbol":
        return False
    if levels["root"] == "large dense" and levels["weights"] == "parameters":
        return False
    return levels["dtype"] == "float32" or math.prod(root.shape) < _MAX_NARROW_ELEMENTS


def _draw(name: str, ops: OpRegistry, generator: np.random.Generator, levels: Levels) -> DrawnGraph:
    root = _BLOCK[levels["root"]]
    takes_weights = levels["weights"] == "parameters"
    is_symbolic = levels["rows"] == "symbol"
    draft = BlockDraft(
        name, ops, generator, dtype=levels["dtype"], is_symbolic=is_symbolic, takes_weights=takes_weights
    )
    x = draft.param(*root.shape)
    value = root.build(draft, x)
    other = _operand(draft, levels["joined"].partition(" ")[2], value, root.channel)
    result = _join_and_activate(draft, value, other, levels, _ACTIVATIONS.get(levels["activation"]))
    match levels["reader"]:
        case "the root's result too":
            return draft.finish(result, value) if result is not value else draft.finish(result)
        case "flat dense":
            shape = draft.shape(result)
            flat = draft.op("reshape", result, shape=(shape[0], int(np.prod(shape[1:]))))
            return draft.finish(draft.op("nn.dense", flat, draft.weights(4, int(np.prod(shape[1:])))))
        case "permuted sum":
            axes = (1, 0, *range(2, len(draft.shape(result))))
            return draft.finish(draft.op("sum", draft.op("permute_dims", result, axes=axes), axis=(-1,)))
        case "a second chain":
            numbers = _SECOND_CHAIN_NUMBERS[levels["activation"]]
            activation = (_ACTIVATIONS[levels["activation"]][0], numbers)
            if takes_weights:
                return draft.finish(result, _join_and_activate(draft, value, other, levels, activation))
            draft.restart_weights()
            twin = root.build(draft, x)
            return draft.finish(result, _join_and_activate(draft, twin, other, levels, activation))
    return draft.finish(result)


def _operand(draft: BlockDraft, kind: str, value: Value, channel: int) -> Value | None:
    """Return the operand joined with a value; ``None`` if there is none."""
    shape = draft.shape(value)
    last = shape[-1]
    match kind:
        case "channel":
            return draft.weights(shape[channel], *[1] * (-channel - 1))
        case "row":
            return draft.weights(last)
        case "row of each":
            return draft.param(shape[0], *[1] * (len(shape) - 2), last if len(shape) > 2 else 1)
        case "all" | "from all":
            return draft.param(*shape)
        case "number":
            return draft.const(np.asarray(0.5, to_numpy(draft.dtype)))
    return None


def _join_and_activate(
    draft: BlockDraft,
    value: Value,
    other: Value | None,
    levels: Levels,
    activation: tuple[str, Mapping[str, Any]] | None,
) -> Value:
    """Return a value after joining and activation, in the chosen order."""

    def join(x: Value) -> Value:
        if other is None:
            return x
        by = levels["joined"].partition(" ")[0]
        return draft.op(by, *((other, x) if by == "subtract" else (x, other)))

    def activate(x: Value) -> Value:
        return x if activation is None else draft.op(activation[0], x, **activation[1])

    steps: Sequence[Callable[[Value], Value]] = (join, activate)
    for step in steps if levels["order"] == "activation last" else steps[::-1]:
        value = step(value)
    return value
