"""Quotients, remainders and broadcasts of sizes stand in front of the kernels' calls, once, and in no loop."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from byoc_core.dims import symbol
from byoc_core.ir import Var, tensor

from plugins.ccompiler.tests.bench import Bench, Builder

CALL = re.compile(r"byoc_(?:floordiv|mod|broadcast)\(")
FUNCTION = re.compile(r"^(?:BYOC_\w+ |static )[^;{}]*\{\n(.*?)^\}", re.DOTALL | re.MULTILINE)


def _random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _encoder(builder: Builder, x: Var) -> Var:
    """Return the attention of a waveform's frames, spelled out: convolutions of stride 5 and 2, then products."""
    frames = builder.emit("nn.conv1d", x, _random(8, 1, 7, seed=1), strides=[5], padding=[0, 0])
    frames = builder.emit("nn.gelu", frames)
    frames = builder.emit("nn.conv1d", frames, _random(8, 8, 3, seed=2), strides=[2], padding=[1, 1])
    rows = builder.emit("permute_dims", frames, axes=[0, 2, 1])
    rows = builder.emit("nn.layer_norm", rows, _random(8, seed=3), _random(8, seed=4), axes=[-1])
    scores = builder.emit("matmul", rows, builder.emit("permute_dims", rows, axes=[0, 2, 1]))
    weights = builder.emit("nn.softmax", builder.emit("multiply", scores, np.float32(0.25)), axis=-1)
    result: Var = builder.emit("matmul", weights, rows)
    return result


def test_no_loop_computes_a_size(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x", tensor((symbol("b"), 1, symbol("n"))))
    function = bench.add(builder, _encoder(builder, x))
    source = bench.module.get_source()
    bodies = [match[1] for match in FUNCTION.finditer(source)]
    calls = [line for body in bodies for line in body.splitlines() if CALL.search(line)]
    assert len(calls) == len([line for line in source.splitlines() if CALL.search(line)])
    assert calls, "the model has no quotient of sizes"
    assert all(re.match(r"  const int64_t dim_size_\d+ = ", line) for line in calls)
    for body in bodies:
        values = [
            line.partition(" = ")[2] for line in body.splitlines() if line.startswith("  const int64_t dim_size_")
        ]
        assert len(values) == len(set(values))
    for length in (17, 57, 130):
        inputs = _random(3, 1, length, seed=length)
        (actual,), (expected,) = bench.run(function, inputs), bench.reference(function, inputs)
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)
