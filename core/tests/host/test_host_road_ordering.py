"""Ordering, cumulative ops, arrangement and borders in all stages: text, build, save, load, run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.dims import evaluate
from byoc_core.errors import ExecutionError
from byoc_core.ir import IRModule, TensorType, parse_module, print_module
from byoc_core.ops import default_ops
from byoc_core.transform import InferTypes
from byoc_core.vm import VirtualMachine

Array = np.ndarray[Any, Any]


def _order(x: Array) -> Array:
    return np.argsort(x, axis=-1, kind="stable")


def _blocks(x: Array) -> Array:
    n, c, h, w = x.shape
    spread = np.zeros((n, c // 4, 2 * h, 2 * w), x.dtype)
    for channel in range(c):
        place, depth = divmod(channel, c // 4)
        spread[:, depth, place // 2 :: 2, place % 2 :: 2] = x[:, channel]
    return spread


_OPS: dict[str, tuple[tuple[Any, ...], list[str], Callable[[Array], list[Array]]]] = {
    "topk": (
        ("m", "n"),
        ['a, b = R.topk(x, k="n//2", axis=1, largest=False)'],
        lambda x: [np.sort(x)[:, : x.shape[1] // 2], _order(x)[:, : x.shape[1] // 2]],
    ),
    "sort": (
        ("m", "n"),
        ["a = R.sort(x, descending=True)", "b = R.argsort(x, axis=-1)"],
        lambda x: [np.sort(x)[:, ::-1], _order(x)],
    ),
    "cumulative": (
        ("m", "n"),
        ["a = R.cumsum(x, axis=1, exclusive=True)", "b = R.cumprod(x, axis=-1, reverse=True)"],
        lambda x: [np.cumsum(x, axis=1) - x, np.cumprod(x[:, ::-1], axis=1)[:, ::-1]],
    ),
    "triangle": (
        ("m", "n"),
        ['a = R.trilu(x, k="n-m")', 'b = R.trilu(x, k="-m", upper=True)'],
        lambda x: [np.triu(x, x.shape[1] - x.shape[0]), np.triu(x, -x.shape[0])],
    ),
    "blocks": (
        (2, "4*m", "n", 3),
        ["a = R.depth_to_space(x, block_size=2)", "b = R.space_to_depth(a, block_size=2)"],
        lambda x: [_blocks(x), x],
    ),
    "border": (
        ("m", "n"),
        [
            'a = R.nn.border_pad(x, pad_width=(1, 0, 2, 3), mode="reflect")',
            'b = R.nn.border_pad(x, pad_width=(0, 1, 1, 1), mode="edge")',
        ],
        lambda x: [np.pad(x, ((1, 0), (2, 3)), mode="reflect"), np.pad(x, ((0, 1), (1, 1)), mode="edge")],
    ),
    "truth": (
        ("m", "n"),
        ["c = R.abs(x)", "d = R.equal(x, c)", "a = R.all(d, axis=(1,))", "b = R.any(d, keepdims=True)"],
        lambda x: [np.all(x >= 0, axis=1), np.any(x >= 0, keepdims=True)],
    ),
    "place": (
        ("m", "n"),
        ["a = R.argmax(x, axis=1, select_last_index=True)", "b = R.argmin(x, axis=0)"],
        lambda x: [x.shape[1] - 1 - np.argmax(x[:, ::-1], axis=1), np.argmin(x, axis=0)],
    ),
}
_SIZES = [{"m": 2, "n": 7}, {"m": 5, "n": 4}, {"m": 1, "n": 1}]


def _module(name: str) -> IRModule:
    shape, lines, _ = _OPS[name]
    body = "\n        ".join(lines)
    return R.parse(
        f"""
@R.ir_module
class Example:
    @R.function
    def main(x: R.Tensor({shape!r}, "float32")):
        {body}
        return a, b
"""
    )


def _input(module: IRModule, sizes: dict[str, int]) -> Array:
    type_ = module["main"].params[0].type
    assert isinstance(type_, TensorType)
    shape = [evaluate(dim, sizes) for dim in type_.shape or ()]
    return np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)


def _check(module: IRModule, name: str, sizes: list[dict[str, int]], path: Path) -> None:
    executable = byoc_core.build(module, [])
    executable.save(path)
    for machine in (VirtualMachine(executable), VirtualMachine(byoc_core.load(path))):
        for values in sizes:
            x = _input(module, values)
            for result, wanted in zip(machine["main"](x), _OPS[name][2](x), strict=True):
                np.testing.assert_array_equal(result, wanted)
                assert result.shape == wanted.shape


@pytest.mark.parametrize("name", sorted(_OPS))
def test_dynamic_sizes_from_text_to_a_loaded_artifact(name: str, tmp_path: Path) -> None:
    _check(_module(name), name, _SIZES, tmp_path / "model.byoc")


@pytest.mark.parametrize("name", sorted(_OPS))
@pytest.mark.parametrize("sizes", _SIZES, ids=str)
def test_static_sizes_from_text_to_a_loaded_artifact(name: str, sizes: dict[str, int], tmp_path: Path) -> None:
    module = _module(name)
    type_ = TensorType(_input(module, sizes).shape, "float32")
    static = InferTypes({"x": type_})(module)
    assert not any(value.type.symbols for value in static["main"].results if isinstance(value.type, TensorType))
    _check(static, name, [sizes], tmp_path / "model.byoc")


@pytest.mark.parametrize("name", sorted(_OPS))
def test_printed_text_parses_back(name: str) -> None:
    module = _module(name)
    text = print_module(module)
    assert print_module(parse_module(text, default_ops())) == text


def test_sizes_that_only_another_parameter_gives() -> None:
    module = R.parse(
        """
@R.ir_module
class Mask:
    @R.function
    def main(past: R.Tensor(("p", 2), "float32"), scores: R.Tensor(("s", "t"), "float32")):
        hidden = R.trilu(scores, k="p+1")
        best, place = R.topk(hidden, k="min(p, t)", sorted=False)
        return hidden, best, place
"""
    )
    machine = VirtualMachine(byoc_core.build(module, []))
    for p, s, t in ((0, 3, 3), (2, 1, 3), (4, 2, 3)):
        scores = np.arange(1, 1 + s * t, dtype=np.float32).reshape(s, t)
        hidden, best, place = machine["main"](np.zeros((p, 2), np.float32), scores)
        np.testing.assert_array_equal(hidden, np.triu(scores, p + 1))
        assert best.shape == place.shape == (s, min(p, t))
        np.testing.assert_array_equal(best, np.take_along_axis(hidden, place, 1))


def test_more_than_an_axis_has_is_an_error_while_running() -> None:
    module = R.parse(
        """
@R.ir_module
class Top:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a, b = R.topk(x, k=5)
        return a, b
"""
    )
    machine = VirtualMachine(byoc_core.build(module, []))
    assert machine["main"](np.arange(6, dtype=np.float32))[1].tolist() == [5, 4, 3, 2, 1]
    with pytest.raises(ExecutionError) as caught:
        machine["main"](np.zeros(4, np.float32))
    assert "attribute `k` is out of range for the axis; got 5, expected 0 to 4" in str(caught.value)
