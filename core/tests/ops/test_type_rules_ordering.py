"""Type rules of ordering, cumulative ops and tests of truth against their kernels, and the inferred sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.dims import symbol
from byoc_core.ir.builder import FunctionBuilder
from byoc_core.ops import default_ops
from byoc_core.opset.types import tensor
from hypothesis import strategies as st

Shape = tuple[int, ...]
Case = tuple[list[tuple[Shape, str]], dict[str, Any]]
Draw = Callable[[st.SearchStrategy[Any]], Any]

_NUMBERS = st.sampled_from(["float32", "float64", "float16", "bfloat16", "int8", "int64", "uint8", "int4"])


def _shape(draw: Draw) -> Shape:
    return tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))


def _along_axis(*flags: str) -> Callable[[Draw], Case]:
    def case(draw: Draw) -> Case:
        shape = _shape(draw)
        axis = draw(st.integers(-len(shape), len(shape) - 1))
        return [(shape, draw(_NUMBERS))], {"axis": axis, **{flag: draw(st.booleans()) for flag in flags}}

    return case


def _topk(draw: Draw) -> Case:
    operands, attrs = _along_axis("largest", "sorted")(draw)
    return operands, {**attrs, "k": draw(st.integers(0, operands[0][0][attrs["axis"]]))}


def _test(draw: Draw) -> Case:
    shape = _shape(draw)
    axes = tuple(draw(st.permutations(range(len(shape))))[: draw(st.integers(0, len(shape)))])
    return [(shape, "bool")], {"axis": draw(st.sampled_from([None, axes])), "keepdims": draw(st.booleans())}


_CASES: dict[str, Callable[[Draw], Case]] = {
    **dict.fromkeys(["all", "any"], _test),
    **dict.fromkeys(["argsort", "sort"], _along_axis("descending")),
    **dict.fromkeys(["cumprod", "cumsum"], _along_axis("exclusive", "reverse")),
    "topk": _topk,
}


@pytest.mark.parametrize("k", ["n//2", "min(n, 50)", "m", 0])
def test_topk_takes_a_symbolic_number(k: str | int) -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    values, indices = builder.bind("topk", [builder.param("x", tensor(("m", "n")))], {"k": k}).results
    assert values.type == tensor(("m", k))
    assert indices.type == tensor(("m", k), "int64")


def test_costs() -> None:
    builder = FunctionBuilder("f", ops=default_ops())
    x = builder.param("x", tensor(("n", 8)))
    for name, attrs in {"topk": {"k": 3}, "sort": {}, "argsort": {}, "cumsum": {"axis": 1}}.items():
        binding = builder.bind(name, [x], attrs)
        comparisons = 1 if name == "cumsum" else 3
        assert binding.op.flops(binding.context()) == 8 * comparisons * symbol("n"), name
    binding = builder.bind("sort", [x], {"axis": 0})
    assert binding.op.flops(binding.context()) == 8 * symbol("n")
