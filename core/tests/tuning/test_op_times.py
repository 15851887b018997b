"""Rows for the database of measured ops, from profiles of toys."""

from __future__ import annotations

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.ir import FunctionBuilder, IRModule, tensor
from byoc_core.measurements import Measurement
from byoc_core.partitioning import GreedyByOrder
from byoc_core.pattern import CompositePattern, is_op, wildcard
from byoc_core.runtime.module import NDArray
from byoc_core.tuning.op_times import MeasuredOp, RecordingPolicy, measured_ops, measurements_of, repeated_profile

from core.tests.tuning.toys import MODULE, SleepyBackend, X

MS = 1e-3


def measure(
    module: IRModule, backend: SleepyBackend, *inputs: NDArray
) -> tuple[dict[str, float | None], list[Measurement], int]:
    """Return the seconds of ops by name, the rows, and the number of profiles."""
    policy = RecordingPolicy(GreedyByOrder())
    executable = byoc_core.build(module, [backend], policy=policy)
    names = [param.name for param in module["main"].params]
    found, samples = repeated_profile(executable, dict(zip(names, inputs, strict=True)), 0.0)
    assert policy.module is not None
    ops: list[MeasuredOp] = list(measured_ops(found, backend.name, policy.module, scale=False))
    rows = measurements_of(ops, policy, byoc_core.backends.get(backend), {}, found.sizes, 1, samples)
    return {op.key[1]: op.seconds for op in ops}, rows, samples


def test_each_op_has_the_time_of_its_part() -> None:
    seconds, rows, samples = measure(MODULE, SleepyBackend("aone", {"tanh": 3 * MS, "add": MS}), X)
    assert samples == 6
    assert {row.op: row.samples for row in rows} == {"nn.relu": 6, "tanh": 6, "add": 6}
    times = {row.op: row.seconds for row in rows}
    assert 3 * MS <= times["tanh"] < 9 * MS
    assert MS <= times["add"] < 3 * MS
    assert times["nn.relu"] < MS
    assert times["tanh"] == seconds["b"]
    assert {row.op: row.key.partition("|")[2] for row in rows} == {"nn.relu": "|", "tanh": "|add", "add": "tanh|"}
    assert all(row.estimated == 1e-9 for row in rows)


def test_equal_ops_of_a_model_are_one_row_with_the_median() -> None:
    lines = ["def main(v0: R.Tensor((4,), 'float32')):"]
    lines += [f"    v{i + 1} = R.tanh(v{i})" for i in range(5)]
    module = R.parse("\n".join([*lines, "    return v5"]))
    seconds, rows, samples = measure(module, SleepyBackend("aone", {"tanh": MS}), np.ones(4, np.float32))
    inner = [row for row in rows if row.key.endswith("|tanh|tanh")]
    assert len(inner) == 1
    assert inner[0].samples == 3 * samples
    times = sorted(value for name, value in seconds.items() if name in ("v2", "v3", "v4") and value is not None)
    assert inner[0].seconds == times[1]


def test_a_composite_is_a_row_with_the_sum() -> None:
    backend = SleepyBackend("aone", {"tanh": 2 * MS, "nn.relu": MS}, ["add"])
    backend.patterns = [CompositePattern("aone.pair", is_op("tanh")(is_op("nn.relu")(wildcard())))]
    module = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.nn.relu(x)
    b = R.tanh(a)
    c = R.add(b, x)
    return c
""")
    _, rows, _ = measure(module, backend, X)
    assert len(rows) == 2
    composite = next(row for row in rows if row.op != "add")
    assert composite.key.endswith("||add")
    assert composite.seconds >= 0


def test_a_region_without_parts_gives_a_single_op_its_time() -> None:
    module = R.parse("""
def main(x: R.Tensor((2, 4), "float32")):
    a = R.tanh(x)
    return a
""")
    seconds, rows, _ = measure(module, SleepyBackend("aone", {"tanh": 2 * MS}, has_parts=False), X)
    # the sleep lies behind the parts: without parts, the region has all the time
    assert seconds["a"] == rows[0].seconds >= 2 * MS


def test_ops_of_symbolic_sizes_are_rows_of_the_measured_sizes() -> None:
    text = 'def main(x: R.Tensor(({size}, 4), "float32")):\n    a = R.tanh(x)\n    return a\n'
    symbolic, fixed = (R.parse(text.format(size=size)) for size in ('"n"', "2"))
    keys = [measure(module, SleepyBackend("aone", {}), X)[1][0].key for module in (symbolic, fixed)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("size", [2, 300])
def test_an_op_of_constants_is_never_the_heaviest(size: int) -> None:
    from byoc_core.tuning import op_times

    builder = FunctionBuilder("main")
    x = builder.param("x", tensor((2,)))
    constant = builder.emit("tanh", np.ones((size, 2), np.float32))
    result = builder.emit("nn.relu", x)
    function = builder.finish(result, constant)  # type: ignore[arg-type]
    heavy, light = function.bindings
    assert op_times._has_input(light)
    assert not op_times._has_input(heavy)
