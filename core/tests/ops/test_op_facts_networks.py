"""The declared facts of neural-network ops, against their kernels: bounds, permuted axes, rounds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.ops.cases import new_function
from byoc_core.opset.cases import OpCase, example
from byoc_core.opset.contexts import OpContext
from byoc_core.opset.families import ops_of
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.permutation import inverse
from byoc_core.opset.value_bounds import LARGEST, ValueFacts

NDArray = npt.NDArray[Any]
FAMILIES = ("convolution", "pooling", "normalisation", "recurrence", "resize", "attention")
OPS: dict[str, OpDef] = {name: op for family in FAMILIES for name, op in ops_of(family).items()}
BOUNDED = sorted(name for name, op in OPS.items() if op.bound is not None)
PERMUTED = sorted(name for name, op in OPS.items() if op.permute is not None)
FILLS = ("equal", "signs", "spike")


@dataclass(frozen=True)
class ArrayFacts(ValueFacts):
    """The facts of a use of an op on these operands; the first operand is no constant."""

    context: OpContext
    arrays: Sequence[NDArray]
    constants: bool

    def bound(self, operand: int) -> float:
        """Return the largest magnitude."""
        return float(np.max(np.abs(self.arrays[operand])))

    def is_constant(self, operand: int) -> bool:
        """Return whether the operand is a parameter."""
        return self.constants and operand > 0

    def constant(self, operand: int) -> NDArray:
        """Return the operand."""
        return self.arrays[operand]

    def smallest(self, operand: int) -> float:
        """Return the least magnitude of a parameter."""
        return float(np.min(np.abs(self.arrays[operand]))) if self.is_constant(operand) else 0.0

    def largest_sum(self, operand: int, axis: int) -> float:
        """Return the largest sum of magnitudes over all axes but one."""
        wide = np.abs(np.moveaxis(self.arrays[operand], axis, 0).astype(np.float64))
        return float(wide.reshape(len(wide), -1).sum(axis=1).max())


def _context(op: OpDef, case: OpCase) -> OpContext:
    return new_function(op, case.types(), case.attrs)[1].context()


def _operands(op: OpDef, case: OpCase, fill: str, magnitude: float, seed: int) -> list[NDArray]:
    """Return operands of equal magnitude, with results near their bounds."""
    arrays = [np.full(np.shape(array), magnitude, np.float32) for array in case.arrays(np.random.default_rng(seed))]
    if fill == "signs":
        arrays = [array * np.random.default_rng(seed).choice([-1, 1], array.shape) for array in arrays]
    elif fill == "spike":
        arrays[0] = np.zeros_like(arrays[0])
        arrays[0].flat[0] = magnitude
    if op.name == "nn.batch_norm":
        arrays[4] = np.abs(arrays[4])  # a variance
    return [array.astype(np.float32) for array in arrays]


@pytest.mark.parametrize("name", BOUNDED)
def test_no_result_is_larger_than_its_bound(name: str) -> None:
    op, num_proved = OPS[name], 0
    assert op.kernel is not None
    assert op.bound is not None
    for seed, (case, fill, magnitude) in enumerate(itertools.product(op.canonical_cases, FILLS, (2.0**-20, 37.0))):
        context = _context(op, case)
        arrays = _operands(op, case, fill, magnitude, seed)
        result = op.kernel(*arrays, **context.attrs)
        assert not isinstance(result, tuple)
        for constants in (False, True):
            bound = op.bound(ArrayFacts(context, arrays, constants))
            assert np.max(np.abs(result)) <= bound
            num_proved += bound <= LARGEST
    assert num_proved > 0


@pytest.mark.parametrize(
    ("name", "largest"),
    [(f"nn.{kind}_pool{rank}d", 1.0) for kind in ("max", "avg", "adaptive_max") for rank in (1, 2, 3)]
    + [(f"nn.conv{rank}d", 16.0 * 3**rank) for rank in (1, 2, 3)],
)
def test_the_bound_of_equal_elements_is_their_result(name: str, largest: float) -> None:
    op = OPS[name]
    assert op.bound is not None
    arrays = _operands(op, op.canonical_cases[0], "equal", 1.0, 0)
    facts = ArrayFacts(_context(op, op.canonical_cases[0]), arrays, constants=True)
    assert largest <= op.bound(facts) <= largest * (1 + 2.0**-10)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("nn.resize", example((2, 5), axes=(1,), sizes=(9,), method="cubic")),
        ("nn.max_pool1d", example((1, 1, 2), pool_size=(2,), dilation=(3,), padding=(2, 2), strides=(1,))),
    ],
)
def test_results_that_exceed_the_operand_have_no_bound(name: str, case: OpCase) -> None:
    op = OPS[name]
    assert op.kernel is not None
    assert op.bound is not None
    context = _context(op, case)
    arrays = [array.clip(-1, 1) for array in case.arrays(np.random.default_rng(3))]
    result = op.kernel(*arrays, **context.attrs)
    assert np.max(np.abs(np.asarray(result))) > np.max(np.abs(arrays[0]))
    assert op.bound(ArrayFacts(context, arrays, constants=True)) == math.inf


@pytest.mark.parametrize("name", PERMUTED)
def test_permuting_operands_and_attributes_and_back_equals_the_plain_result(name: str) -> None:
    op = OPS[name]
    assert op.kernel is not None
    assert op.permute is not None
    for index, case in enumerate(op.canonical_cases):
        context = _context(op, case)
        arrays = case.arrays(np.random.default_rng(index))
        arrays = tuple(np.abs(array) if place == 4 else array for place, array in enumerate(arrays))  # a variance
        permutable = op.permute(context)
        assert permutable is not None
        plain = op.kernel(*arrays, **context.attrs)
        for order in itertools.permutations(range(permutable.rank)):
            # Views: kernels add the elements of a line in the same order then.
            stored = [
                array.transpose(inverse(order)) if place in permutable.operands else array
                for place, array in enumerate(arrays)
            ]
            result = op.kernel(*stored, **permutable.attrs(order))
            assert not isinstance(result, tuple)
            np.testing.assert_array_equal(result.transpose(permutable.result_order(order)), plain)


@pytest.mark.parametrize(
    ("name", "case", "rounds"),
    [
        ("nn.conv1d", example((2, 8, 9), (8, 1, 5), groups=8), 8 * 5),
        ("nn.conv2d", example((2, 9, 8, 16), (3, 2, 16, 4), data_layout="NHWC", kernel_layout="HWIO"), 3 * 2),
        ("nn.conv2d_transpose", example((2, 4, 9, 8), (4, 8, 3, 2), groups=2), 2 * 3 * 2),
        ("nn.max_pool2d", example((2, 4, 9, 8), pool_size=(3, 2)), 3 * 2),
        ("nn.adaptive_avg_pool2d", example((2, 4, 9, 8), output_size=(3, 2)), 1),
        ("nn.lrn", example((2, 16, 9, 8), size=3), 3),
        ("nn.rnn", example((5, 2, 3), (1, 4, 3), (1, 4, 4), (1, 8), (1, 2, 4)), 5),
    ],
)
def test_rounds_count_taps_channels_and_steps(name: str, case: OpCase, rounds: int) -> None:
    op = OPS[name]
    assert op.rounds(_context(op, case)) == rounds
