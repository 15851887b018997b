"""Layouts of values between regions: IR text in, IR text out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.backend import AxisOrders
from byoc_core.errors import HookError
from byoc_core.ir import Function, IRModule, verify
from byoc_core.partitioning import MergeCompositeFunctions, PlanLayouts
from byoc_core.transform.tensors import permutation_of

from core.tests.conftest import FakeBackend

LAST = (0, 2, 3, 1)
IMAGES = {"nn.conv2d": [AxisOrders((LAST, None), (LAST,))], "nn.max_pool2d": [AxisOrders((LAST,), (LAST,))]}
ANY = [AxisOrders((LAST,), (LAST,)), AxisOrders((None,), (None,))]


def state_channels_last(function: Function) -> Sequence[AxisOrders] | None:
    return IMAGES.get(function.bindings[0].op.name)


def backends(*names: str) -> list[Any]:
    return [FakeBackend(name, None, layouts=state_channels_last) for name in names]


def planned(text: str, plugins: Sequence[Any]) -> IRModule:
    carved = MergeCompositeFunctions()(R.parse(text))
    found = PlanLayouts(plugins)(carved)
    verify(found)
    assert str(PlanLayouts(plugins)(found)) == str(found)
    return found


def sketch(module: IRModule) -> list[str]:
    """Return a line for each binding, with the axes of transposes."""
    lines = []
    for name, function in module.functions.items():
        results = " ".join(getattr(result, "name", "const") for result in function.results)
        lines.append(f"{name}({' '.join(param.name for param in function.params)}) -> {results}")
        for binding in function.bindings:
            operands = " ".join(getattr(operand, "name", "const") for operand in binding.operands)
            axes = "".join(map(str, permutation_of(binding))) if binding.op.name == "permute_dims" else ""
            defined = " ".join(result.name for result in binding.results)
            lines.append(f"  {defined} = {binding.attrs.get('callee', binding.op.name)}{axes}({operands})")
    return lines


TWO_CONVOLUTIONS = """
def main(x: R.Tensor((1, 4, 8, 8)), w: R.Tensor((4, 4, 1, 1))):
    a = R.nn.conv2d(x, w, codegen="aone")
    b = R.nn.relu(a, codegen="aone")
    c = R.add(b, b, codegen="btwo")
    d = R.nn.conv2d(c, w, codegen="btwo")
    return d
"""


def test_a_value_crosses_with_channels_last_if_both_sides_prefer_it() -> None:
    assert sketch(planned(TWO_CONVOLUTIONS, backends("aone", "btwo"))) == [
        "aone_main_0(x w) -> b_stored",
        "  a = nn.conv2d(x w)",
        "  b = nn.relu(a)",
        "  b_stored = permute_dims0231(b)",
        "btwo_main_0(b_stored w) -> d",
        "  b_stored_1 = permute_dims0312(b_stored)",
        "  c = add(b_stored_1 b_stored_1)",
        "  d = nn.conv2d(c w)",
        "main(x w) -> d",
        "  b_stored = aone_main_0(x w)",
        "  d = btwo_main_0(b_stored w)",
    ]


def test_without_a_statement_of_both_backends_nothing_changes() -> None:
    carved = MergeCompositeFunctions()(R.parse(TWO_CONVOLUTIONS))
    silent = FakeBackend("btwo", None)
    assert PlanLayouts([*backends("aone"), silent])(carved) is carved
    prefers_rows = FakeBackend("btwo", None, layouts=lambda _: [AxisOrders((None, None), (None,))])
    assert PlanLayouts([*backends("aone"), prefers_rows])(carved) is carved


def test_other_readers_get_the_value_as_before() -> None:
    text = TWO_CONVOLUTIONS.replace("return d", "return d, b")
    lines = sketch(planned(text, backends("aone", "btwo")))
    assert "aone_main_0(x w) -> b b_stored" in lines
    assert "  b b_stored = aone_main_0(x w)" in lines
    assert "main(x w) -> d b" in lines


def test_an_order_passes_through_a_region_without_a_preference() -> None:
    """The pooling of ``cthree`` reads channels last or rows, so the value stays with channels last on both borders."""
    text = """
def main(x: R.Tensor((1, 4, 8, 8)), w: R.Tensor((4, 4, 1, 1))):
    a = R.nn.conv2d(x, w, codegen="aone")
    b = R.nn.avg_pool2d(a, pool_size=(2, 2), codegen="cthree")
    c = R.nn.conv2d(b, w, codegen="btwo")
    return c
"""
    any_order = FakeBackend("cthree", None, layouts=lambda _: ANY)
    lines = sketch(planned(text, [*backends("aone", "btwo"), any_order]))
    assert [line for line in lines if "permute_dims" in line] == [
        "  a_stored = permute_dims0231(a)",
        "  a_stored_1 = permute_dims0312(a_stored)",
        "  b_stored = permute_dims0231(b)",
        "  b_stored_1 = permute_dims0312(b_stored)",
    ]


def test_a_value_wanted_in_rows_by_most_readers_stays() -> None:
    """A softmax reads rows: converting once behind the convolution is as cheap as permuting."""
    text = """
def main(x: R.Tensor((1, 4, 8, 8)), w: R.Tensor((4, 4, 1, 1))):
    a = R.nn.conv2d(x, w, codegen="aone")
    b = R.nn.softmax(a, axis=3, codegen="btwo")
    c = R.cumsum(a, axis=3, codegen="btwo")
    return b, c
"""
    lines = sketch(planned(text, backends("aone", "btwo")))
    assert not any("permute_dims" in line for line in lines)


def test_an_image_of_one_pixel_needs_no_transpose() -> None:
    text = TWO_CONVOLUTIONS.replace("(1, 4, 8, 8)", "(1, 4, 1, 1)")
    assert not any("permute_dims" in line for line in sketch(planned(text, backends("aone", "btwo"))))


def test_composites_are_asked_op_by_op() -> None:
    text = """
def main(x: R.Tensor((1, 4, 8, 8)), w: R.Tensor((4, 4, 1, 1))):
    @R.region
    def body(p: R.Tensor((1, 4, 8, 8)), q: R.Tensor((4, 4, 1, 1))):
        a = R.nn.conv2d(p, q)
        b = R.nn.relu(a)
        return b
    b = R.composite("aone.conv", (x, w), regions=[body], codegen="aone")
    d = R.nn.conv2d(b, w, codegen="btwo")
    return d
"""
    lines = sketch(planned(text, backends("aone", "btwo")))
    assert "  b_stored = permute_dims0231(b)" in lines or "  b_0_stored = permute_dims0231(b_0)" in lines


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        (AxisOrders((LAST,), (LAST,)), "returned orders for another number of operands than 2"),
        (AxisOrders((LAST, None), ()), "returned orders for another number of results than 1"),
        (
            AxisOrders(((0, 1), None), (LAST,)),
            "returned an order of operands that is no permutation of the axes, (0, 1)",
        ),
        (AxisOrders((LAST, None), ((0, 1, 2, 2),)), "returned an order of results that is no permutation"),
        (AxisOrders((("a", 1, 2, 3), None), (LAST,)), "returned an order of operands"),  # type: ignore[arg-type]
        ("NHWC", "returned among other values a value of the wrong type; got str, expected AxisOrders"),
    ],
)
def test_wrong_orders_are_errors_of_the_hook(orders: Any, problem: str) -> None:
    wrong = FakeBackend("aone", None, layouts=lambda _: [orders] if isinstance(orders, AxisOrders) else orders)
    with pytest.raises(HookError, match="plugin `aone`, hook `byoc_layouts`") as caught:
        planned(TWO_CONVOLUTIONS, [wrong, *backends("btwo")])
    assert problem in str(caught.value)


def test_a_failing_hook_costs_the_layout_only() -> None:
    def fail(function: Function) -> None:
        raise ValueError(function.name)

    module = R.parse(TWO_CONVOLUTIONS.replace(', codegen="aone"', "").replace(', codegen="btwo"', ""))
    first = FakeBackend("aone", ("nn.conv2d", "permute_dims"), layouts=fail)
    second = FakeBackend("btwo", ("add", "nn.relu", "permute_dims"), layouts=state_channels_last)
    with pytest.warns(UserWarning, match="byoc_layouts`: raised"):
        executable = byoc_core.build(module, [first, second])
    assert executable.report_data["layouts"] == []
    assert first.compiled
    assert second.compiled


@pytest.mark.parametrize("strided", [False, True])
def test_a_build_plans_layouts_and_reports_them(strided: bool) -> None:
    """Transposes stay in the regions, also of a backend taking strided views."""
    module = R.parse(TWO_CONVOLUTIONS.replace(', codegen="aone"', "").replace(', codegen="btwo"', ""))
    first = FakeBackend("aone", ("nn.conv2d", "permute_dims"), layouts=state_channels_last, strided=strided)
    second = FakeBackend("btwo", ("add", "nn.relu", "permute_dims"), layouts=state_channels_last, strided=strided)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 4, 8, 8), np.float32), rng.standard_normal((4, 4, 1, 1), np.float32)
    expected = byoc_core.VirtualMachine(byoc_core.build(module, []))["main"](x, w)
    executable = byoc_core.build(module, [first, second])
    assert np.array_equal(byoc_core.VirtualMachine(executable)["main"](x, w), expected)
    report = executable.report_data
    assert report["layouts"] == [
        {"value": "a", "axes": [0, 2, 3, 1], "producer": "aone_main_0", "readers": ["btwo_main_0"]},
        {"value": "c", "axes": [0, 2, 3, 1], "producer": "btwo_main_0", "readers": ["aone_main_1"]},
    ]
    assert [row["op"] for row in report["ops"]] == ["nn.conv2d", "nn.relu", "add", "nn.conv2d"]
    assert [row["inputs"] for row in report["ops"]] == [["x", "w"], ["a"], ["b"], ["c", "w"]]
    compiled = {f.name: [b.op.name for b in f.bindings] for plugin in (first, second) for f in plugin.compiled}
    assert compiled["btwo_main_0"] == ["permute_dims", "nn.relu", "add", "permute_dims"]
    text = byoc_core.explain(module, [first, second]).report()
    assert "values crossing borders with permuted axes:\n  axes 0, 2, 3, 1: a (aone_main_0 to btwo_main_0); c (" in text
