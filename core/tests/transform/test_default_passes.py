"""The first passes of every compilation, on their own and inside ``build``."""

from __future__ import annotations

import byoc_core
import numpy as np
from byoc_core.transform import (
    Canonicalise,
    EliminateCommonSubexpressions,
    FoldBatchNorm,
    FoldPad,
    PassRun,
    RecogniseComposites,
    RemoveDeadCode,
    Sequential,
    Simplify,
    default_passes,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.tests.conftest import FakeBackend
from core.tests.ir_text import check_pass, check_unchanged, parse_main
from core.tests.transform.random_modules import random_modules


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_is_left_to_do(data: st.DataObject) -> None:
    after = Sequential(default_passes())(data.draw(random_modules()))
    for transform in (Canonicalise(), EliminateCommonSubexpressions(), FoldPad(), FoldBatchNorm(), RemoveDeadCode()):
        assert transform(after) is after


def test_each_pass_is_timed() -> None:
    runs: list[PassRun] = []
    Sequential(default_passes(), on_pass=runs.append)(parse_main('x: R.Tensor((3,), "float32")', "return x"))
    assert [run.name for run in runs] == [
        "FoldShapes",
        "FoldConstants",
        "TakeIntegers",
        "LowerEinsum",
        "Simplify",
        "FoldPad",
        "FuseTextCounts",
        "FoldBatchNorm",
        "RemoveDeadCode",
        "HoistSeeds",
    ]


def test_what_one_pass_finds_the_next_uses() -> None:
    body = "a = R.add(x, x)\nb = R.negative(a)\nc = R.negative(b)\nd = R.add(x, x)\ne = R.subtract(c, d)\nreturn e"
    after = "a = R.add(x, x)\ne = R.subtract(a, a)\nreturn e"
    check_pass(Sequential(default_passes()), 'x: R.Tensor((3,), "float32")', body, after)


def test_quantised_constants_stay_for_backends_that_compute_on_them(fake_backend: type[FakeBackend]) -> None:
    body = 'w = R.dequantize(R.const([1, 2, 3], "int8"), R.const(0.5), R.const(0, "int8"))\ny = R.add(x, w)\nreturn y'
    check_unchanged(Sequential(default_passes(keep_quantised=True)), 'x: R.Tensor((3,), "float32")', body)
    module = parse_main('x: R.Tensor((3,), "float32")', body)
    # What the backend does not claim is folded.
    for claimed, ops in ((["dequantize", "add"], ["dequantize", "add"]), (["add"], ["add"])):
        backend = fake_backend("aone", claimed, quantised=True)
        executable = byoc_core.build(module, [backend])
        assert [row["op"] for row in executable.report_data["ops"]] == ops
        result = byoc_core.VirtualMachine(executable)["main"](np.zeros(3, np.float32))
        np.testing.assert_array_equal(result, [0.5, 1.0, 1.5])


def test_build_runs_them_and_results_may_coincide() -> None:
    body = (
        "a = R.negative(x)\nb = R.negative(a)\nc = R.exp(x)\nd = R.exp(b)\n"
        '@R.region\ndef yes(p: R.Tensor((3,))):\n    q = R.multiply(p, R.const(1.0, "float32"))\n    return q\n'
        "@R.region\ndef no(p: R.Tensor((3,))):\n    q = R.negative(p)\n    r = R.negative(q)\n    return r\n"
        "e = R.if_(c0, x, regions=[yes, no])\nreturn b, c, d, b, e"
    )
    executable = byoc_core.build(parse_main('x: R.Tensor((3,), "float32"), c0: R.Tensor((), "bool")', body), [])
    assert [row["op"] for row in executable.report_data["ops"]] == ["exp"]
    x = np.array([-0.0, 1.0, 2.0], np.float32)
    results = byoc_core.VirtualMachine(executable)["main"](x, np.array(True))
    for result, wanted in zip(results, (x, np.exp(x), np.exp(x), x, x), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_a_backend_asks_for_composites_when_it_prepares(fake_backend: type[FakeBackend]) -> None:
    body = "a = R.sigmoid(x)\nb = R.multiply(a, x)\nc = R.exp(b)\nreturn c"
    module = parse_main('x: R.Tensor((3,), "float32")', body)
    asking = fake_backend("aone", ["nn.swish"], prepare=RecogniseComposites(("nn.swish",)))
    for backend, wanted in (
        (fake_backend("aone", ["nn.swish"]), {"sigmoid": "host", "multiply": "host", "exp": "host"}),
        (asking, {"nn.swish": "aone", "exp": "host"}),
    ):
        executable = byoc_core.build(module, [backend])
        assert {row["op"]: row["outcome"] for row in executable.report_data["ops"]} == wanted


def test_a_choice_between_values_that_merge_goes() -> None:
    lines = ["a = R.exp(x)", "b = R.exp(x)", "less = R.less(a, b)", "c = R.where(less, a, b)"]
    lines += ["d = R.sin(c)", "e = R.sin(a)", "f = R.add(d, e)", "return f"]
    after = "a = R.exp(x)\nd = R.sin(a)\nf = R.add(d, d)\nreturn f"
    check_pass(Simplify(), 'x: R.Tensor((3,), "float32")', "\n".join(lines), after)
