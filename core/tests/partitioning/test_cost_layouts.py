"""Placement by cost with layouts: an image crosses a border for nothing if both backends keep its channels last."""

from __future__ import annotations

from collections.abc import Sequence

import byoc_core
import pytest
from byoc_core import script as R
from byoc_core.backend import AxisOrders, Estimate
from byoc_core.ir import Function
from byoc_core.partitioning import ByCost, MachineModel, PartitionRequest, partition
from byoc_core.partitioning.layouts.expected import ExpectedOrder, expect_orders
from byoc_core.partitioning.op_structure import OpNumbers

from core.tests.conftest import FakeBackend
from core.tests.partitioning.conftest import Placement

LAST = (0, 2, 3, 1)
SLOW = {"host": MachineModel(flops_per_second=1e3, bytes_per_second=1e3)}
MODULE = R.parse("""
def main(x: R.Tensor((1, 8, 16, 16)), w: R.Tensor((8, 8, 1, 1))):
    a = R.nn.conv2d(x, w)
    b = R.nn.relu(a)
    c = R.nn.max_pool2d(b, pool_size=(2, 2), strides=(1, 1))
    d = R.nn.conv2d(c, w)
    return d
""")
ROWS = R.parse("""
def main(x: R.Tensor((1, 8, 16, 16)), w: R.Tensor((8, 8, 1, 1))):
    a = R.nn.conv2d(x, w)
    b = R.reshape(a, shape=(8, 256))
    c = R.nn.relu(b)
    d = R.reshape(c, shape=(1, 8, 16, 16))
    e = R.nn.max_pool2d(d, pool_size=(2, 2), strides=(1, 1))
    f = R.nn.conv2d(e, w)
    return f
""")
"""The rows in the middle are in row-major order, whatever the convolutions prefer."""
NBYTES = 8 * 16 * 16 * 4
CHANGE_S = 1e-4
"""Seconds of a change of layout of the largest image."""


def state_channels_last(function: Function) -> Sequence[AxisOrders] | None:
    if function.bindings[0].op.name not in ("nn.conv2d", "nn.max_pool2d"):
        return None
    rest = (None,) * (len(function.bindings[0].operands) - 1)
    return [AxisOrders((LAST, *rest), (LAST,))]


def state_rows(function: Function) -> Sequence[AxisOrders] | None:
    binding = function.bindings[0]
    return [AxisOrders((None,) * len(binding.operands), (None,) * len(binding.results))]


def backend(
    name: str, conv: float, pool: float, *, layouts: bool, change_s: float = CHANGE_S, reshapes: bool = False
) -> FakeBackend:
    """Return a backend with the seconds of convolutions, of pooling, and of a change of layout."""
    times = {"nn.conv2d": conv, "nn.max_pool2d": pool, "nn.relu": 1e-7}
    if reshapes:
        times["reshape"] = 0.0

    def estimate(function: Function) -> Estimate:
        (binding,) = function.bindings
        return Estimate(times[binding.op.name], 1e-7, layout_bytes_per_second=NBYTES / change_s)

    return FakeBackend(name, times, estimate=estimate, layouts=state_channels_last if layouts else state_rows)


@pytest.mark.parametrize("layouts", [True, False])
def test_the_faster_pooling_is_worth_a_border_without_a_change_of_layout(layouts: bool) -> None:
    """The gain of 50 us is below the cost of two changes of layout, but far above two calls."""
    plugins = [backend("aone", 1e-5, 6e-5, layouts=True), backend("btwo", 1e-3, 1e-5, layouts=layouts)]
    found = Placement(partition(MODULE, plugins, policy=ByCost(machines=SLOW)))
    places = {name: found.backend_of[region] for name, region in found.region_of.items()}
    assert places["a"] == places["d"] == "aone"
    assert places["c"] == ("btwo" if layouts else "aone")


@pytest.mark.parametrize("change_s", [CHANGE_S, CHANGE_S / 10])
def test_a_backend_changing_rows_at_a_border_pays_for_the_change(change_s: float) -> None:
    """The faster pooling gains 50 us, and needs its image with channels last: behind a border, a change of layout."""
    plugins = [
        backend("aone", 1e-5, 6e-5, layouts=True, change_s=change_s, reshapes=True),
        backend("btwo", 1e-3, 1e-5, layouts=True, change_s=change_s),
    ]
    found = Placement(partition(ROWS, plugins, policy=ByCost(machines=SLOW)))
    places = {name: found.backend_of[region] for name, region in found.region_of.items()}
    assert places["a"] == places["c"] == places["f"] == "aone"
    assert places["e"] == ("aone" if change_s == CHANGE_S else "btwo")


def test_parameters_and_values_usable_in_both_orders_are_expected_row_major() -> None:
    def state(function: Function) -> Sequence[AxisOrders] | None:
        (binding,) = function.bindings
        if binding.op.name == "nn.max_pool2d":
            rows = AxisOrders((None,), (None,))
            return [AxisOrders((LAST,), (LAST,)), rows]
        return state_channels_last(function)

    plugins = [backend("aone", 1e-5, 6e-5, layouts=True), FakeBackend("btwo", {"nn.max_pool2d"}, layouts=state)]
    handles = [byoc_core.backends.get(plugin) for plugin in plugins]
    request = PartitionRequest(handles)
    trials = [request.claim(ROWS, handle) for handle in handles]
    orders = expect_orders(ROWS, trials, handles, {}, OpNumbers())
    last, written, read = ExpectedOrder(LAST, LAST), ExpectedOrder(written=LAST), ExpectedOrder(read=LAST)
    assert orders == {
        "aone": {("main", "a"): written, ("main", "d"): read, ("main", "e"): last, ("main", "f"): written},
        "btwo": {},
    }
