"""Bools at the border: bytes other than 0 and 1 are true to every backend, by every way into a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core import script as R
from byoc_core.runtime.arguments import as_input, call_checked
from byoc_core.runtime.module import PackedFunction, Signature, TensorSpec
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

pytestmark = pytest.mark.interpreter

NDArray = npt.NDArray[Any]
Road = Callable[[byoc_core.VirtualMachine, NDArray, NDArray], Any]

MODULE = R.parse("""
def main(x: R.Tensor(("n",), "bool"), y: R.Tensor(("n",), "bool")):
    a = R.cast(x, dtype="int32")
    b = R.logical_and(x, y)
    c = R.cast(b, dtype="float32")
    d = R.equal(x, y)
    return a, c, d
""")
DIRTY = np.array([0, 1, 2, 255, 128, 7], np.uint8)
OTHER = np.array([3, 1, 1, 0, 64, 7], np.uint8)
WANTED = [
    np.array([0, 1, 1, 1, 1, 1], np.int32),
    np.array([0, 1, 1, 0, 1, 1], np.float32),
    np.array([False, True, True, False, True, True]),
]


class Exchanged:
    """An array accessible through DLPack only."""

    def __init__(self, array: NDArray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _again(machine: byoc_core.VirtualMachine, x: NDArray, y: NDArray) -> Any:
    """Call twice: the second call knows the sizes."""
    machine["main"](np.zeros(x.size, np.bool_), np.zeros(x.size, np.bool_))
    return machine["main"](x, y)


def _by_name(machine: byoc_core.VirtualMachine, x: NDArray, y: NDArray) -> Any:
    """Name inputs, and a result buffer used directly by the machine if possible."""
    return machine.run("main", {"x": x, "y": y}, out={"a": np.empty(x.size, np.int32)})


def _bound(machine: byoc_core.VirtualMachine, x: NDArray, y: NDArray) -> Any:
    """Bind clean bytes, and change the bytes before the call."""
    held = [np.zeros(x.size, np.bool_) for _ in range(2)]
    call = machine.bind("main", dict(zip("xy", held, strict=True)))
    call()
    held[0].view(np.uint8)[:], held[1].view(np.uint8)[:] = x.view(np.uint8), y.view(np.uint8)
    return call()


def _strided(machine: byoc_core.VirtualMachine, x: NDArray, y: NDArray) -> Any:
    return machine["main"](*(np.repeat(array.view(np.uint8), 2).view(np.bool_)[::2] for array in (x, y)))


def _exchanged(machine: byoc_core.VirtualMachine, x: NDArray, y: NDArray) -> Any:
    return machine["main"](Exchanged(x), Exchanged(y))


ROADS: list[Road] = [_again, _by_name, _strided, _exchanged, _bound]


@pytest.mark.parametrize("native", [True, False], ids=["native", "python"])
@pytest.mark.parametrize("road", ROADS, ids=lambda road: road.__name__)
def test_bytes_of_bools_are_true_or_false_on_every_road(road: Road, native: bool) -> None:
    machine = byoc_core.VirtualMachine(byoc_core.build(MODULE, []), native=native)
    for made, right in zip(road(machine, DIRTY.view(np.bool_), OTHER.view(np.bool_)), WANTED, strict=True):
        np.testing.assert_array_equal(made.view(np.uint8), right.view(np.uint8))


@given(hnp.arrays(np.uint8, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0), elements=st.integers(0, 255)))
def test_an_input_has_the_bytes_of_numpys_truth(bytes_: NDArray) -> None:
    given_ = bytes_.view(np.bool_)
    before = bytes_.copy()
    taken = as_input(given_, TensorSpec("x", "bool", bytes_.shape), "x")
    np.testing.assert_array_equal(taken.view(np.uint8), (before != 0).astype(np.uint8))
    np.testing.assert_array_equal(bytes_, before)
    assert (taken is given_) == bool((before <= 1).all())


def test_a_function_of_a_module_gets_clean_bytes() -> None:
    seen: list[NDArray] = []
    spec = TensorSpec("x", "bool", (6,))
    function = PackedFunction("f", lambda x, out: seen.append(x), Signature((spec,), (spec,)))
    call_checked(function, [DIRTY.view(np.bool_), np.empty(6, np.bool_)])
    assert seen[0].view(np.uint8).max() == 1
