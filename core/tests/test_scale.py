"""Modules of many thousand ops: no stage needs recursion or much more than linear time."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import IRModule, Var, verify
from byoc_core.ir.builder import Operand
from byoc_core.ops import FunctionBuilder
from byoc_core.transform import evaluate_function

from core.tests.conftest import FakeBackend

OPS = ("tanh", "sin", "cos", "abs")


class Grower:
    """A builder of ``main`` with one parameter ``x`` from ops on four floats."""

    def __init__(self) -> None:
        self.builder = FunctionBuilder("main")
        self.x = self.builder.param("x", byoc_core.ir.tensor((4,)))

    def emit(self, op: str, *operands: Operand) -> Var:
        return self.builder.bind(op, operands, {}).results[0]

    def module(self, *results: Var) -> IRModule:
        return IRModule({"main": self.builder.finish(*results)}, self.builder.constants)


def chain(num_ops: int) -> IRModule:
    grower = Grower()
    value = grower.x
    for index in range(num_ops):
        value = grower.emit(OPS[index % len(OPS)], value)
    return grower.module(value)


def layers(num_ops: int) -> IRModule:
    """Two layers of branches, all alive at once, each scaled by a separate constant."""
    grower, joined = Grower(), None
    for _ in range(2):
        source = grower.x if joined is None else joined
        width = num_ops // 8
        branches = [grower.emit("multiply", source, np.full(4, 1 + 1 / (i + 1), np.float32)) for i in range(width)]
        branches = [grower.emit("tanh", grower.emit("sin", value)) for value in branches]
        joined = branches[0]
        for value in branches[1:]:
            joined = grower.emit("add", joined, value)
        joined = grower.emit("cos", joined)
    assert joined is not None
    return grower.module(joined)


def random_graph(num_ops: int) -> IRModule:
    grower, rng = Grower(), random.Random(0)
    values = [grower.x]
    for _ in range(num_ops):
        reach = min(len(values), 12 if rng.random() < 0.95 else len(values))
        left, right = (values[-1 - rng.randrange(reach)] for _ in range(2))
        values.append(
            grower.emit("multiply", left, right) if rng.random() < 0.5 else grower.emit(rng.choice(OPS), left)
        )
    return grower.module(*values[-8:])


def test_a_chain_of_twenty_thousand_ops_is_read_without_recursion() -> None:
    module = chain(20_000)
    verify(module)
    parsed = byoc_core.parse(str(module))
    assert parsed == module
    assert hash(parsed) == hash(module)
    (result,) = evaluate_function(module, "main", [np.linspace(-1, 1, 4, dtype=np.float32)])
    assert np.isfinite(result).all()


@pytest.mark.parametrize("make", [chain, layers, random_graph])
def test_build_save_load_and_run(
    make: Callable[[int], IRModule], fake_backend: type[FakeBackend], tmp_path: Path
) -> None:
    module = make(4_000)
    x = np.linspace(-1, 1, 4, dtype=np.float32)
    expected = evaluate_function(module, "main", [x])
    executable = byoc_core.build(module, [])
    executable.save(tmp_path / "model.byoc")
    many = byoc_core.build(module, [fake_backend("aone", ["tanh", "multiply"])])
    assert {row["outcome"] for row in many.report_data["ops"]} == {"aone", "host"}
    assert len(many.program.functions[0].code) > 500
    assert executable.arena_nbytes == {"main": 0}
    assert sum(tensor.offset == 0 for tensor in many.program.functions[0].tensors) > 1
    arena = many.arena_nbytes["main"]
    assert isinstance(arena, int)
    assert 64 < arena < 64 * len(many.program.functions[0].tensors)
    for made in (byoc_core.load(tmp_path / "model.byoc"), many):
        found = byoc_core.VirtualMachine(made)["main"](x)
        for have, want in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            np.testing.assert_array_equal(have, want)
