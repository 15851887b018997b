"""Schedules offered for attention, recurrent layers and products of bytes: each computes the layer and is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import byoc_ccompiler.backend as ccompiler
import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.kernels.named_schedules import MAX_OFFERED
from byoc_core import script as R
from byoc_core.backend import backends
from byoc_core.backend.info import CompileContext
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.ir import Function, tensor
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.runtime.module import NDArray
from byoc_core.transform import BindParams

from plugins.ccompiler.tests import test_ccompiler_attention as attentions
from plugins.ccompiler.tests import test_ccompiler_recurrence as recurrences
from plugins.ccompiler.tests.bench import MEANING, Bench

Layer = tuple[Function, list[NDArray], Callable[[Bench, Function, Sequence[NDArray]], None]]
"""A function of a layer, the inputs, and the comparison of its results with the oracle."""


def attention(bench: Bench, schedule: str | None, **attrs: Any) -> Layer:
    """Add attention with a number for each key as a mask."""
    generator, shapes = np.random.default_rng(1), [(2, 4, 20, 16), (2, 2, 600, 16), (2, 2, 600, 24), (2, 1, 1, 600)]
    inputs = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    builder = bench.builder()
    operands = [builder.param(f"x{number}", tensor(shape)) for number, shape in enumerate(shapes)]
    binding = builder.bind("nn.attention", operands, attrs, schedule=schedule)

    def check(bench: Bench, function: Function, inputs: Sequence[NDArray]) -> None:
        (oracle,), (found,) = bench.reference(function, *inputs, wide=True), bench.run(function, *inputs)
        attentions.assert_near(found, oracle, inputs[2], *inputs[1].shape[2:])

    return bench.add(builder, binding.result), inputs, check


def recurrence(bench: Bench, schedule: str | None, op: str, batch: int) -> Layer:
    """Add a recurrent layer with constant weights."""
    sizes = (17, batch, 24, 40)
    weights = recurrences.draw_weights(op, 1, 24, 40, "float32")
    inputs = recurrences.draw_inputs(op, 1, sizes, "float32")
    builder = bench.builder()
    x, *states = (builder.param(f"x{number}", tensor(array.shape)) for number, array in enumerate(inputs))
    constants = [builder.const(weight) for weight in weights]
    attrs = {"direction": "forward"}
    binding = builder.bind(op, [x, *constants, *states], attrs, names="yhc"[: len(states) + 1], schedule=schedule)

    def check(bench: Bench, function: Function, inputs: Sequence[NDArray]) -> None:
        oracles = bench.reference(function, *inputs, wide=True)
        for found, oracle in zip(bench.run(function, *inputs), oracles, strict=True):
            recurrences.assert_near(found, oracle)

    return bench.add(builder, *binding.results), inputs, check


def of_bytes(bench: Bench, schedule: str | None, rows: int) -> Layer:
    """Add a product of bytes with weights, written as a product of integers."""
    generator, builder = np.random.default_rng(1), bench.builder()
    left = builder.emit("cast", builder.param("x", tensor((rows, 700), "uint8")), dtype="int32")
    right = builder.const(generator.integers(-128, 128, (700, 90)).astype(np.int32))
    zero = builder.const(np.int32(3))
    binding = builder.bind("matmul", [builder.emit("subtract", left, zero), right], {}, schedule=schedule)

    def check(bench: Bench, function: Function, inputs: Sequence[NDArray]) -> None:
        (found,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
        np.testing.assert_array_equal(found, expected)

    return bench.add(builder, binding.result), [generator.integers(0, 256, (rows, 700)).astype(np.uint8)], check


CASES: dict[str, tuple[str, Callable[..., Layer]]] = {
    "attention": ("attention", attention),
    "causal attention": ("attention", partial(attention, causal=True, offset=580)),
    "capped attention": ("attention", partial(attention, softcap=3.0)),
    "lstm of a line": ("recurrence", partial(recurrence, op="nn.lstm", batch=1)),
    "gru of lines": ("recurrence", partial(recurrence, op="nn.gru", batch=6)),
    "bytes": ("byte", partial(of_bytes, rows=100)),
    "bytes of a row": ("byte", partial(of_bytes, rows=1)),
}


@pytest.mark.parametrize("march", ["native", "generic"])
@pytest.mark.parametrize("name", CASES)
def test_each_offered_schedule_computes_the_layer_and_is_used(name: str, march: str) -> None:
    kind, add = CASES[name]
    bench = Bench(march=march)
    function, _, _ = add(bench, None)
    context = CompileContext("ccompiler", bench.options, bench.constants)
    (names,) = ccompiler.byoc_schedules(function, context).values()
    assert 2 <= len(set(names)) == len(names) <= MAX_OFFERED
    assert {text.partition(" ")[0] for text in names} == {kind}
    bench = Bench(march=march, opt_level=MEANING)
    layers = [add(bench, schedule) for schedule in (None, *names)]
    context = CompileContext("ccompiler", bench.options, bench.constants)
    used = []
    for function, inputs, check in layers:
        check(bench, function, inputs)
        reports = ccompiler.byoc_generated_kernels([function], context)
        used.append(repr([report.schedule for report in reports]))
    assert len(set(used)) == len(used)


RECOGNISED = {
    "attention": R.parse("""
def main(q: R.Tensor((1, 2, 20, 16)), k: R.Tensor((1, 2, 600, 16)), v: R.Tensor((1, 2, 600, 16))):
    t = R.permute_dims(k, axes=(0, 1, 3, 2))
    a = R.matmul(q, t)
    b = R.nn.softmax(a)
    c = R.matmul(b, v)
    return c
"""),
    "byte": R.parse("""
def main(x: R.Tensor((100, 700), "uint8"), w: R.Tensor((700, 90), "int32"), z: R.Tensor((), "int32")):
    a = R.cast(x, dtype="int32")
    b = R.subtract(a, z)
    c = R.matmul(b, w)
    return c
"""),
}


@pytest.mark.parametrize("kind", RECOGNISED)
def test_kernels_of_several_ops_have_the_choice_too(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    generator, module = np.random.default_rng(1), RECOGNISED[kind]
    weights: dict[str, NDArray] = {
        "w": generator.integers(-128, 128, (700, 90)).astype(np.int32),
        "z": np.array(3, np.int32),
    }
    module = BindParams(weights)(module) if kind == "byte" else module
    handle = backends().get("ccompiler")
    carved = Compiler().carve(module, CompileRequest(backends=["ccompiler"]))
    (region,) = (function for function in carved.functions.values() if function.attrs.get("Codegen") == "ccompiler")
    offered = handle.schedules(region, handle.context(carved))
    assert [(op, {name.split()[0] for name in names}) for op, names in offered.items()] == [("c", {kind})]
    used = set()
    for name in (None, *offered["c"]):
        policy = PlacedOps({}, {} if name is None else {"main/c": name})
        explanation = byoc_core.explain(module, ["ccompiler"], policy=policy, kernels=True)
        (item,) = explanation.report_data["kernels"]
        schedules = [kernel["schedule"] for kernel in item["kernels"] if kernel["schedule"]]
        assert name is None or {text.split("=")[0] for text in name.split()[1:]} <= {*schedules[0]}
        used.add(repr(schedules))
    assert len(used) == 1 + len(offered["c"])
    assert caplog.messages == []
