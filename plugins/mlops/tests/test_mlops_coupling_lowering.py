"""Pairwise coupling in C, against the numpy kernel."""

from __future__ import annotations

from typing import Any, cast

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dims import symbol
from byoc_core.ir import FunctionBuilder, IRModule, Var, tensor
from byoc_core.ops import default_ops
from byoc_mlops.coupling_kernel import couple_probabilities

from plugins.mlops.tests.test_mlops_tree_lowering import module_types, random_operands

NDArray = npt.NDArray[Any]


def _module(count: int, dtype: str) -> IRModule:
    builder = FunctionBuilder("main", ops=default_ops().extended(byoc_core.backends.ops(["mlops"])))
    pairs = builder.param("pairs", tensor((symbol("n"), count * (count - 1) // 2), dtype))
    result = cast("Var", builder.emit("mlops.couple_probabilities", pairs, num_classes=count))
    return IRModule({"main": builder.finish(result)}, builder.constants, ops=builder.ops)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [2, 3, 4, 9, 17])
def test_probabilities_are_those_of_the_kernel(count: int, dtype: str) -> None:
    executable = byoc_core.build(_module(count, dtype), ["mlops"])
    assert module_types(executable) == {"csource"}
    machine, rng = byoc_core.VirtualMachine(executable), np.random.default_rng(count)
    pairs = rng.random((60, count * (count - 1) // 2)).astype(dtype)
    pairs[:20] = rng.choice([0, 1, 0.5, 1e-9, 2, -1, np.inf], pairs[:20].shape)
    pairs[20:25, 0] = np.nan
    for rows in (pairs, pairs[:1], pairs[:0]):
        found, expected = np.asarray(machine["main"](rows)), couple_probabilities(rows, num_classes=count)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        # Sums of other orders differ by roundings of float64, carried over up to 100 rounds.
        bound = 2**10 * count * np.finfo(np.float64).eps + np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=bound, atol=bound)


def test_without_a_compiler_the_kernel_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYOC_CC", "no-such-compiler")
    executable = byoc_core.build(_module(3, "float32"), ["mlops"])
    assert module_types(executable) == {"mlops"}


def test_trees_and_couplings_share_a_region() -> None:
    operands = random_operands(np.random.default_rng(0), "float32", [0], missing=False)
    builder = FunctionBuilder("main", ops=default_ops().extended(byoc_core.backends.ops(["mlops"])))
    x = builder.param("x", tensor((symbol("n"), 3)))
    pairs = builder.param("pairs", tensor((symbol("n"), 1)))
    trees = cast("Var", builder.emit("mlops.tree_ensemble", x, *operands, num_targets=2))
    shares = cast("Var", builder.emit("mlops.couple_probabilities", pairs, num_classes=2))
    result = cast("Var", builder.emit("mlops.couple_probabilities", pairs, num_classes=2))
    module = IRModule({"main": builder.finish(trees, shares, result)}, builder.constants, ops=builder.ops)
    executable = byoc_core.build(module, ["mlops"])
    assert module_types(executable) == {"csource"}
    rng = np.random.default_rng(1)
    samples, some = rng.random((5, 3), np.float32), rng.random((5, 1), np.float32)
    found = byoc_core.VirtualMachine(executable)["main"](samples, some)
    np.testing.assert_array_equal(found[1], found[2])
    np.testing.assert_allclose(found[1], couple_probabilities(some, num_classes=2), rtol=1e-6)
