"""Costs of ops from the shipped table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import pytest
from byoc_core.authoring.cost_table import CostTable
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, tensor
from byoc_core.partitioning import ByCost, MachineModel, Policy
from byoc_dnnl.capi import Isa
from byoc_dnnl.measured_costs import measured_costs

from plugins.dnnl.tests.dnnl_region import Region, emit, need_avx512


class Another:
    """A backend claiming all ops, without cost estimates."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo("another")

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support:
        del binding
        return Support()

    @hookimpl
    def byoc_codegen(self, functions: Sequence[Function], context: CompileContext) -> CodegenResult:
        del context
        refused = Rejection("partition-only", "modules are partitioned for it, not compiled")
        return CodegenResult(None, rejections={function.name: refused for function in functions})


def _convolution(outputs: int, side: int, *, groups: int = 4) -> Region:
    region = Region()
    x = region.builder.param("x", tensor((1, groups * 6, 56, 56)))
    weight = region.builder.const(region.draw(groups * outputs, 6, side, side))
    region.finish(emit(region, "nn.conv2d", x, weight, groups=groups, padding=(side // 2,) * 4))
    return region


def _joined() -> Region:
    region = Region()
    shape = (1, 16, 56, 56)
    operands = [region.builder.param(name, tensor(shape)) for name in "xy"]
    region.finish(emit(region, "concat", *operands, axis=1))
    return region


def _owner(region: Region, policy: Policy | None) -> object:
    made = byoc_core.partition(region.ir, backends=["dnnl", Another()], policy=policy)
    (owner,) = {function.attrs["Codegen"] for function in made.functions.values() if "Codegen" in function.attrs}
    return owner


def _estimate(region: Region) -> Any:
    handle = byoc_core.backends.get("dnnl")
    return handle.estimate(region.function, handle.context(region.ir, {}))


@pytest.mark.parametrize("op", ["nn.conv2d", "matmul", "nn.softmax", "nn.layer_norm", "nn.max_pool2d", "concat"])
@pytest.mark.parametrize(("isa", "is_amd"), [(Isa.AVX512_CORE, False), (Isa.AVX512_CORE_BF16, True)])
def test_the_other_rows_of_a_table_predict_a_row(op: str, isa: int, *, is_amd: bool) -> None:
    """Half of the rows are predicted within a factor of 1.6, and four of five within a factor of 3."""
    table = measured_costs(isa, is_amd=is_amd)
    rows = [row for row in table.rows if row.op == op]
    assert len(rows) >= 5
    ratios = []
    for row in rows[:: max(1, len(rows) // 40)]:
        others = CostTable(table.flops, table.bandwidth, tuple(other for other in rows if other is not row))
        expected = others.seconds(row)
        assert expected is not None
        ratios.append(max(expected / row.seconds, row.seconds / expected))
    ratios.sort()
    assert ratios[len(ratios) // 2] < 1.6
    assert ratios[len(ratios) * 4 // 5] < 3


@pytest.mark.parametrize("region", [_convolution(16, 3, groups=1), _joined()], ids=["convolution", "concat"])
def test_the_cheaper_backend_by_the_table_gets_the_op(region: Region) -> None:
    need_avx512()
    (binding,) = region.function.bindings
    flops, nbytes = (work(binding.context()) for work in (binding.op.flops, binding.op.nbytes))
    assert isinstance(flops, int)
    assert isinstance(nbytes, int)
    found = _estimate(region)
    guess = MachineModel(1e11, 2e10).estimate(flops, nbytes).seconds
    for times in (0.5, 2.0):
        factor = guess / (times * found.seconds)
        other = MachineModel(1e11 * factor, 2e10 * factor, call_seconds=found.call_seconds)
        assert _owner(region, ByCost(machines={"another": other})) == ("another" if times < 1 else "dnnl")
    assert _owner(region, None) == "dnnl"


def test_processors_with_and_without_avx512_and_of_amd_have_tables_of_their_own() -> None:
    tables = [measured_costs(Isa.AVX2), measured_costs(Isa.AVX512_CORE), measured_costs(Isa.AVX512_CORE, is_amd=True)]
    assert len({table.to_text() for table in tables}) == 3
    assert measured_costs(Isa.AVX2, is_amd=True).to_text() == tables[0].to_text()
