"""Equal kernels are written once, within a function and over the functions of a source."""

from __future__ import annotations

from typing import Any

import numpy as np
from byoc_core.ir import Function, Var, tensor

from plugins.ccompiler.tests.bench import Bench, Builder


def _random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _layer(builder: Builder, x: Var, size: int, seed: int) -> Var:
    """Return a normalisation of the softmax of a product with separate weights."""
    product = builder.emit("matmul", x, _random(size, size, seed=seed))
    result: Var = builder.emit("nn.softmax", builder.emit("nn.relu", product))
    return result


def _num_kernels(source: str, op: str) -> int:
    heads = [line for line in source.splitlines() if line.startswith("BYOC_KERNEL void") and line.endswith("{")]
    return sum(f"_{op}(" in head for head in heads)


def _check(bench: Bench, function: Function, *inputs: Any) -> None:
    for actual, expected in zip(bench.run(function, *inputs), bench.reference(function, *inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


def test_layers_of_equal_sizes_share_their_kernels(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((4, 8)))
    for seed in range(3):
        x = _layer(builder, x, 8, seed)
    function = bench.add(builder, x)
    _check(bench, function, _random(4, 8))
    source = bench.module.get_source()
    assert _num_kernels(source, "matmul_relu") == 1
    assert _num_kernels(source, "softmax") == 1
    assert source.count("= nn.softmax(") == 3  # each op is named beside the kernel that computes it


def test_kernels_of_other_sizes_or_constants_are_apart(bench: Bench) -> None:
    builder = bench.builder()
    x, y = builder.param("x", tensor((4, 8))), builder.param("y", tensor((5, 8)))
    results = [builder.emit("add", value, np.float32(2)) for value in (x, y)]
    results.append(builder.emit("cumsum", builder.emit("add", x, np.float32(3)), axis=1))
    function = bench.add(builder, *results)
    _check(bench, function, _random(4, 8), _random(5, 8))
    assert bench.module.get_source().count("= add(") == 3


def test_functions_of_one_source_share_kernels(bench: Bench) -> None:
    functions: list[Function] = []
    for name in ("left", "right"):
        builder = bench.builder()
        x = builder.param(name, tensor((4, 8)))
        functions.append(bench.add(builder, builder.emit("nn.softmax", x)))
    for seed, function in enumerate(functions):
        _check(bench, function, _random(4, 8, seed=seed))
    assert _num_kernels(bench.module.get_source(), "softmax") == 1
