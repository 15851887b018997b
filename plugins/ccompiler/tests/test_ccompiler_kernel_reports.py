"""``byoc_generated_kernels``: each kernel of the C once, with ops, loops and an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import byoc_core
import pytest
from byoc_ccompiler.backend import byoc_codegen, byoc_generated_kernels
from byoc_ccompiler.registry import FAMILIES
from byoc_core import script as R
from byoc_core.backend.hooks import CompileContext, KernelReport, SharedLoop
from byoc_core.errors import ByocError
from byoc_core.ir import tensor
from byoc_core.ops import default_ops
from byoc_core.runtime.csource import CSourceModule

from plugins.ccompiler.tests.bench import Bench

MODULE = R.parse("""
def main(x: R.Tensor(("n", 8)), w: R.Tensor((3, 8))):
    h = R.nn.dense(x, w)
    r = R.nn.relu(h)
    s = R.nn.softmax(r)
    return s
""")


def kernels_of(bench: Bench) -> tuple[Sequence[KernelReport], str]:
    """Return the reported kernels of a bench's functions, and the compiled source."""
    context = CompileContext("ccompiler", bench.options, bench.constants)
    result = byoc_codegen(bench.functions, context)
    assert isinstance(result.module, CSourceModule)
    return byoc_generated_kernels(bench.functions, context), result.module.get_source()


def of_canonical_cases(op: str, *, tutorial: bool) -> Bench:
    """Return a bench with the compiled canonical cases of an op, of known and of symbolic sizes."""
    bench = Bench(tutorial=tutorial)
    for case in default_ops()[op].canonical_cases if op in default_ops() else ():
        for types in (case.types(), case.symbolic_types(everywhere=False)):
            with suppress(ByocError):  # the op may not take such sizes
                bench.op(op, types, **dict(case.attrs))
    context = CompileContext("ccompiler", bench.options, bench.constants)
    rejections = byoc_codegen(bench.functions, context).rejections if bench.functions else {}
    bench.functions = [function for function in bench.functions if function.name not in rejections]
    return bench


@pytest.mark.parametrize("tutorial", [False, True])
@pytest.mark.parametrize("op", sorted(FAMILIES))
def test_every_kernel_of_the_source_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, op: str, *, tutorial: bool
) -> None:
    monkeypatch.setattr(CSourceModule, "build", lambda module: None)  # the text counts
    bench = of_canonical_cases(op, tutorial=tutorial)
    if not bench.functions:
        return
    kernels, source = kernels_of(bench)
    for kernel in kernels:
        assert source.count(kernel.source) == 1
        assert (kernel.loops is None) is (kernel.ps is None)
        assert kernel.ops
    called = dict.fromkeys(name for function in bench.functions for name in bench.calls(function))
    assert [kernel.name for kernel in kernels] == list(called)


def test_the_estimate_of_a_sum_of_two_tensors() -> None:
    bench = Bench()
    bench.op("add", [tensor((64, 256))] * 2)
    (kernel,), _ = kernels_of(bench)
    assert (kernel.ops, kernel.results) == (("add",), ("lv0",))
    assert (kernel.flops, kernel.nbytes) == (64 * 256, 64 * 256 * 12)
    (line,) = [line for line in kernel.loops or () if "writes" in line]
    assert line.endswith("reads x0, x1; writes out")


def test_loops_that_threads_share_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CSourceModule, "build", lambda module: None)
    bench = Bench()
    bench.op("nn.relu", [tensor((1024, 1024))])
    bench.op("nn.dense", [tensor((256, 256)), tensor((256, 256))])
    relu, dense = kernels_of(bench)[0]
    (loop,) = relu.shared_loops
    assert isinstance(loop, SharedLoop)
    assert (relu.loops or ("",))[0].endswith("(parallel)")
    assert loop.ps == relu.ps
    assert dense.shared_loops


def test_explain_tells_the_kernels_of_a_model_and_an_artifact_holds_none() -> None:
    explanation = byoc_core.explain(MODULE, ["ccompiler"], kernels=True)
    (entry,) = explanation.report_data["kernels"]
    assert [kernel["ops"] for kernel in entry["kernels"]] == [["nn.dense", "nn.relu"], ["nn.softmax"]]
    text = explanation.with_sizes(n=64).report_kernels()
    assert text.startswith("ccompiler: 2 kernels in 1 region, counting n = 64\n")
    assert "calls byoc_shared_row_max_f32" in text
    assert "kernels" not in byoc_core.build(MODULE, ["ccompiler"]).report_data
