"""Declared costs of ops: higher if oneDNN has only a slow implementation, to leave these to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import pytest
from byoc_core.backend.hooks import BackendInfo, CodegenResult, CompileContext, Rejection, Support, hookimpl
from byoc_core.ir import Binding, Function, tensor
from byoc_core.partitioning import BACKEND_MACHINE, ByCost, Policy

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


CASES = [
    (_convolution(8, 1), 2.0),
    (_convolution(28, 1), None),
    (_convolution(8, 3), None),
    (_convolution(16, 3, groups=1), None),
    (_joined(), 1.5),
]
NAMES = ["product", "1x1", "3x3", "one group", "concat"]


@pytest.mark.parametrize(("region", "times"), CASES, ids=NAMES)
def test_slow_implementations_are_worse_offers(region: Region, times: float | None) -> None:
    need_avx512()
    (binding,) = region.function.bindings
    found = _estimate(region)
    if times is None:
        assert found is None
    else:
        flops, nbytes = (work(binding.context()) for work in (binding.op.flops, binding.op.nbytes))
        assert isinstance(flops, int)
        assert isinstance(nbytes, int)
        guess = BACKEND_MACHINE.estimate(flops, nbytes)
        assert found.seconds == pytest.approx(times * guess.seconds)
        assert found.call_seconds == guess.call_seconds
    assert _owner(region, ByCost()) == ("dnnl" if times is None else "another")
    assert _owner(region, None) == "dnnl"


def test_what_is_refused_has_no_price() -> None:
    region = Region()
    region.finish(emit(region, "sin", region.builder.param("x", tensor((4,)))))
    assert _estimate(region) is None
