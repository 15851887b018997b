"""Views between regions of generated C and of the host: numbers of calls and copies in programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import byoc_core
import numpy as np
import pytest
from byoc_core import FunctionBuilder
from byoc_core.artifact import Executable
from byoc_core.ir import IRModule, Var, tensor
from byoc_core.partitioning import PartitionOptions, PeelViews
from byoc_core.vm.instructions import Builtin, Call, CallKind


def densely_connected(num_layers: int) -> IRModule:
    """Return layers of a DenseNet: each convolves all earlier results, and joins the result to them."""
    rng = np.random.default_rng(0)
    builder: Any = FunctionBuilder("main")
    value = builder.param("x", tensor((1, 4, 8, 8)))
    for index in range(num_layers):
        weight = rng.standard_normal((4, 4 * (index + 1), 3, 3), np.float32) / 6
        convolved = builder.emit("nn.conv2d", value, weight, padding=(1, 1, 1, 1))
        value = builder.emit("concat", value, builder.emit("nn.relu", convolved), axis=1)
    return IRModule({"main": builder.finish(value)}, builder.constants)


def of_many_parts(num_parts: int) -> IRModule:
    """Return a product split into parts, each computed in a different shape, and joined again."""
    rng = np.random.default_rng(1)
    builder: Any = FunctionBuilder("main")
    x = builder.param("x", tensor((num_parts, 16)))
    product = builder.emit("matmul", x, rng.standard_normal((16, 16), np.float32))
    parts = builder.bind("split", [product], {"sections": (1,) * num_parts, "axis": 0}).results
    values: list[Var] = []
    for part in parts:
        square = builder.emit("reshape", part, shape=(4, 4))
        values.append(builder.emit("reshape", builder.emit("exp", square), shape=(1, 16)))
    return IRModule({"main": builder.finish(builder.emit("concat", *values, axis=0))}, builder.constants)


def count(executable: Executable) -> tuple[int, int, int]:
    """Return the calls of backends, the copies and the bytes of the arena of a program."""
    (main,) = executable.program.functions
    calls = [instruction for instruction in main.code if isinstance(instruction, Call)]
    copies = sum(call.kind is CallKind.BUILTIN and call.callee == Builtin.COPY for call in calls)
    assert isinstance(main.arena_nbytes, int)
    return sum(call.kind is CallKind.EXTERN for call in calls), copies, main.arena_nbytes


def built(module: IRModule, backends: Sequence[str], allowed: Sequence[str]) -> Executable:
    options = PartitionOptions(allow={name: list(allowed) for name in backends} if allowed else {})
    return byoc_core.build(module, backends, partition_options=options)


DENSE, PARTS = densely_connected(4), of_many_parts(4)


@pytest.mark.parametrize(
    ("module", "backends", "allowed", "inside", "between"),
    [
        pytest.param(DENSE, [], [], (1, 0, 47360), (1, 0, 43264), id="dense-host"),
        pytest.param(DENSE, ["ccompiler"], [], (1, 0, 7424), (1, 0, 7424), id="dense-ccompiler"),
        pytest.param(DENSE, ["ccompiler"], ["nn.*"], (8, 0, 12544), (4, 1, 7424), id="dense-convolutions"),
        pytest.param(PARTS, [], [], (1, 0, 0), (1, 0, 0), id="parts-host"),
        pytest.param(PARTS, ["ccompiler"], [], (1, 0, 256), (1, 0, 256), id="parts-ccompiler"),
        pytest.param(PARTS, ["ccompiler"], ["exp"], (6, 0, 256), (5, 0, 256), id="parts-exp"),
    ],
)
def test_calls_copies_and_arenas(
    module: IRModule,
    backends: list[str],
    allowed: list[str],
    inside: tuple[int, int, int],
    between: tuple[int, int, int],
) -> None:
    """With views inside regions, as before, and between regions; arenas include the scratch memory of regions."""
    with patch.object(PeelViews, "__call__", lambda _, transformed: transformed):
        before = built(module, backends, allowed)
    after = built(module, backends, allowed)
    assert (count(before), count(after)) == (inside, between)
    (spec,) = after.program.functions[0].params
    x = np.random.default_rng(2).standard_normal(tuple(map(int, map(str, spec.shape))), np.float32)
    results = [byoc_core.VirtualMachine(executable)["main"](x) for executable in (before, after)]
    assert np.array_equal(results[0], results[1])
