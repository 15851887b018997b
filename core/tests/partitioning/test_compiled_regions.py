"""Regions compiled by hand before a build count in the report like regions compiled by the build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import byoc_core
from byoc_core import script as R
from byoc_core.ir import IRModule
from byoc_core.partitioning import RunCodegen, partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend

BY_HAND = """
@R.ir_module
class Module:
    @R.function
    def byoc_func(x: R.Tensor((16, 16)), y: R.Tensor((16, 16))):
        R.func_attr({"Codegen": "BACKEND", "global_symbol": "byoc_func"})
        z1 = R.multiply(x, y)
        z2 = R.add(z1, z1)
        z3 = R.add(z1, z2)
        return z3

    @R.function
    def host_func(x: R.Tensor((16, 16)), w: R.Tensor((16, 16))):
        gv0 = R.multiply(x, w)
        gv1 = R.exp(gv0)
        return gv1

    @R.function
    def main(x: R.Tensor((16, 16)), y: R.Tensor((16, 16))):
        lv0 = byoc_func(x, y)
        lv1 = host_func(x, lv0)
        return lv1
"""

CHAIN = """
@R.function
def main(x: R.Tensor(("n", 8))):
    a = R.exp(x)
    b = R.tanh(a)
    c = R.multiply(b, b)
    d = R.add(c, b)
    e = R.sqrt(d)
    return e, b
"""


def shares(report: Mapping[str, Any]) -> dict[str, float]:
    return {item["name"]: item["share"] for item in report["backends"] if item["ops"]}


def facts(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report's facts about the work, without the reasons of asked backends."""
    return {
        "ops": [[row[key] for key in ("op", "name", "outcome", "flops", "share")] for row in report["ops"]],
        "total": report["total_flops"],
        "offloaded": report["offloaded_share"],
        "counted": report["counted_sizes"],
        "shares": shares(report),
    }


def test_the_work_of_two_backends_compiled_one_after_the_other(fake_backend: type[FakeBackend]) -> None:
    first, second = fake_backend("aone", ["exp", "tanh"]), fake_backend("btwo", ["multiply", "add"])
    module = R.parse(CHAIN)
    step = RunCodegen(backends=[first])(partition(module, backends=[first]))
    both = RunCodegen(backends=[second])(partition(step, backends=[second]))
    at_once = byoc_core.build(module, backends=[first, second])
    assert shares(at_once.report_data).keys() == {"aone", "btwo", "host"}
    assert facts(byoc_core.build(both, []).report_data) == facts(at_once.report_data)

    half = byoc_core.build(step, backends=[second])  # the first by hand, the second by the build
    assert facts(half.report_data) == facts(at_once.report_data)
    regions = {region["backend"]: region.get("compiled", False) for region in half.report_data["regions"]}
    assert regions == {"aone": True, "btwo": False, "host": False}

    explained = byoc_core.explain(step, [second])
    explained.require_offload(0.5)
    assert "call_dps_packed" in explained.to_script()
    assert "  # aone 40.0%: 2 ops" in explained.to_script()


def test_a_region_that_nothing_calls_counts_for_nothing(fake_backend: type[FakeBackend]) -> None:
    plugin = fake_backend("fake", ["exp", "tanh"])
    compiled = RunCodegen(backends=[plugin])(partition(R.parse(CHAIN), backends=[plugin]))
    other = R.parse("@R.function\ndef main(x: R.Tensor((4,))):\n    y = R.exp(x)\n    return y\n")
    executable = byoc_core.build(compiled.with_functions(other.functions), [])
    assert shares(executable.report_data) == {"host": 1.0}


def test_names_that_stand_in_a_compiled_region_too(fake_backend: type[FakeBackend]) -> None:
    """A value left in the function, and the function, may share names with compiled parts."""
    plugin = fake_backend("fake", ["exp", "tanh"])
    compiled = RunCodegen(backends=[plugin])(partition(R.parse(CHAIN), backends=[plugin]))
    (region,) = compiled.attrs["external_functions"].values()
    renamed = R.parse(str(compiled).replace("c = ", "a = ").replace("(c, ", "(a, "))
    module = IRModule({**renamed.functions}, renamed.constants, compiled.attrs)
    helper = R.parse(f"@R.function\ndef {region.name}(x: R.Tensor((4,))):\n    y = R.exp(x)\n    return y\n")
    module = module.with_function(helper[region.name])
    explained = byoc_core.explain(module, [fake_backend("other", ["sqrt"])])
    rows = {(row["name"], row["op"]): row["outcome"] for row in explained.report_data["ops"]}
    assert rows["a", "exp"] == "fake"
    assert rows["a", "multiply"] == "host"
    lines = [line.strip() for line in explained.to_script().splitlines()]
    assert any(line.startswith("a = R.multiply(b, b)  # host ") for line in lines)


def test_an_annotated_function_counts_once_wherever_it_stands(fake_backend: type[FakeBackend]) -> None:
    module = R.parse(BY_HAND.replace("BACKEND", "fake"))
    turned = module.with_functions(dict(reversed(list(module.functions.items()))))
    plugin = fake_backend("fake", None)
    reports = [byoc_core.build(m, backends=[plugin]).report_data for m in (module, turned)]
    assert reports[0]["total_flops"] == reports[1]["total_flops"] == 5 * 256


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # it makes backends, and keeps nothing
@given(supported=st.lists(st.sets(st.sampled_from(["exp", "tanh", "multiply", "add", "sqrt"])), min_size=1, max_size=4))
def test_steps_by_hand_tell_what_one_build_tells(fake_backend: type[FakeBackend], supported: list[set[str]]) -> None:
    plugins = [fake_backend(f"fake{index}", sorted(ops)) for index, ops in enumerate(supported)]
    module = R.parse(CHAIN)
    by_hand = module
    for plugin in plugins:
        by_hand = RunCodegen(backends=[plugin])(partition(by_hand, backends=[plugin]))
    in_steps, at_once = (
        byoc_core.build(source, backends=backends).report_data
        for source, backends in ((by_hand, ()), (module, plugins))
    )
    assert shares(in_steps) == shares(at_once)
    assert (in_steps["total_flops"], in_steps["offloaded_share"]) == (
        at_once["total_flops"],
        at_once["offloaded_share"],
    )
