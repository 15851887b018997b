"""Schedules offered to a search: each computes the op, each is used by its name, other names change nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import byoc_ccompiler.backend as ccompiler
import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.kernels.named_schedules import MAX_OFFERED
from byoc_core import script as R
from byoc_core.backend.info import CompileContext
from byoc_core.ir import Function, tensor
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.runtime.module import NDArray
from byoc_core.transform import BindParams, evaluate_function

from plugins.ccompiler.tests.bench import MEANING, Bench, sizes_of

F4_ERROR = 4e-6
"""The largest error of the option ``winograd``, as a share of the largest output."""


@dataclass(frozen=True)
class Case:
    """An op, the shapes of both operands, and whether the second is constant.

    Attributes:
        kinds: the kinds of schedules expected among the offered.
    """

    op: str
    left: tuple[int, ...]
    right: tuple[int, ...]
    kinds: frozenset[str]
    attrs: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float32"
    is_constant: bool = True

    def add(self, bench: Bench, schedule: str | None = None) -> Function:
        builder = bench.builder()
        x = builder.param("x", tensor(self.left, self.dtype))
        weight = whole_numbers(self.right, self.dtype, 2)
        w = builder.const(weight) if self.is_constant else builder.param("w", tensor(self.right, self.dtype))
        binding = builder.bind(self.op, [x, w], self.attrs, schedule=schedule)
        return bench.add(builder, builder.emit("nn.relu", binding.result))

    def inputs(self, function: Function) -> list[NDArray]:
        return [whole_numbers(sizes_of(param), self.dtype, k + 1) for k, param in enumerate(function.params)]


def whole_numbers(shape: Sequence[int], dtype: str, seed: int) -> NDArray:
    """Return small whole numbers: sums of their products are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def kinds(*names: str) -> frozenset[str]:
    return frozenset(names)


SAME = {"padding": (1, 1)}
LAST = {"data_layout": "NHWC", "kernel_layout": "OIHW"}
CASES = {
    "windows": Case("nn.conv2d", (1, 32, 14, 14), (40, 32, 3, 3), kinds("winograd", "pixel"), SAME),
    "windows last": Case("nn.conv2d", (2, 9, 7, 24), (40, 24, 3, 3), kinds("winograd", "pixel"), {**SAME, **LAST}),
    "few pixels": Case("nn.conv2d", (1, 256, 4, 4), (320, 256, 3, 3), kinds("winograd", "pixel"), SAME),
    "pixels": Case("nn.conv2d", (1, 48, 9, 9), (70, 48, 1, 1), kinds("pixel")),
    "lines": Case("nn.conv2d", (1, 3, 20, 20), (16, 3, 7, 7), kinds("pixel"), {"padding": (3, 3), "strides": (2, 2)}),
    "groups": Case("nn.conv2d", (1, 32, 9, 9), (64, 16, 3, 3), kinds("pixel"), {**SAME, "groups": 2}),
    "computed filter": Case("nn.conv2d", (1, 32, 9, 9), (8, 32, 3, 3), kinds("pixel"), SAME, is_constant=False),
    "depthwise": Case("nn.conv2d", (1, 40, 12, 12), (40, 1, 3, 3), kinds("depthwise"), {**SAME, "groups": 40}),
    "wide depthwise": Case(
        "nn.conv2d", (1, 96, 12, 12), (96, 1, 7, 7), kinds("depthwise"), {"padding": (3, 3), "groups": 96}
    ),
    "transposed": Case("nn.conv2d_transpose", (1, 4, 6, 6), (4, 5, 3, 3), kinds("pixel")),
    "transposed, phases apart": Case(
        "nn.conv2d_transpose", (1, 4, 6, 6), (4, 40, 3, 3), kinds("pixel"), {"strides": (2, 2)}
    ),
    "transposed in groups": Case("nn.conv2d_transpose", (1, 4, 6, 6), (4, 5, 3, 3), kinds("loop"), {"groups": 2}),
    "windows in the padding": Case(
        "nn.conv2d", (1, 64, 14, 14), (32, 64, 3, 3), kinds("pixel"), {"padding": (12, 12), "dilation": (12, 12)}
    ),
    "volume": Case(
        "nn.conv3d", (1, 16, 6, 10, 10), (32, 16, 3, 3, 3), kinds("winograd", "pixel"), {"padding": (1,) * 6}
    ),
    "filters of a channel": Case("nn.conv2d", (1, 16, 12, 12), (32, 1, 3, 3), kinds("depthwise"), {"groups": 16}),
    "dense": Case("nn.dense", (30, 50), (70, 50), kinds("panel")),
    "long dense": Case("nn.dense", (20, 900), (70, 900), kinds("panel")),
    "dense of a row": Case("nn.dense", (1, 90), (100, 90), kinds("panel", "dot")),
    "dots": Case("nn.dense", (4, 90), (100, 90), kinds("panel", "dot"), is_constant=False),
    "matmul": Case("matmul", (60, 70), (70, 90), kinds("panel"), is_constant=False),
    "stack": Case("matmul", (3, 60, 20), (3, 20, 33), kinds("panel"), is_constant=False),
    "integers": Case("matmul", (20, 30), (30, 70), kinds("stretch"), dtype="int32", is_constant=False),
}


def offered(case: Case, **options: object) -> Sequence[str]:
    bench = Bench(**options)
    context = CompileContext("ccompiler", bench.options, bench.constants)
    return next(iter(ccompiler.byoc_schedules(case.add(bench), context).values()), ())


def schedules_of(bench: Bench, functions: Sequence[Function]) -> list[dict[str, str]]:
    """Return the fields of the schedule of the kernel of each function's first op."""
    context = CompileContext("ccompiler", bench.options, bench.constants)
    found = []
    for function in functions:
        op = function.bindings[0].op.name
        # Transposed convolutions, and those of volumes, become convolutions of images.
        names = {op, op.removesuffix("_transpose").replace("conv3d", "conv2d")}
        reports = ccompiler.byoc_generated_kernels([function], context)
        # The first of several convolutions is the convolution with a choice.
        report = next(report for report in reports if not names.isdisjoint(report.ops))
        found.append(dict(report.schedule))
    return found


@pytest.mark.parametrize("name", CASES)
def test_each_offered_schedule_computes_the_op_and_is_used(name: str) -> None:
    case = CASES[name]
    names = offered(case)
    assert 2 <= len(set(names)) == len(names) <= MAX_OFFERED
    assert {text.partition(" ")[0] for text in names} == case.kinds
    bench = Bench(opt_level=MEANING)
    functions = [case.add(bench, schedule) for schedule in (None, *names)]
    used = schedules_of(bench, functions)
    assert len({repr(fields) for fields in used}) == len(used)
    for text, fields in zip(names, used[1:], strict=True):
        for item in text.split()[1:]:
            key, _, value = item.partition("=")
            assert fields[key].replace(" ", "-") == value, text
    for text, function in zip(("", *names), functions, strict=True):
        inputs = case.inputs(function)
        (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
        bound = F4_ERROR * np.abs(expected).max() if "winograd" in {text.split(" ")[0], *case.kinds} else 0
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound, err_msg=text)


@pytest.mark.parametrize("text", ["", "nonsense", "panel vectors=1", "winograd\x1b[31m" + "x" * 1000])
@pytest.mark.parametrize("name", ["windows", "depthwise", "dense"])
def test_other_names_change_nothing_but_the_log(caplog: pytest.LogCaptureFixture, name: str, text: str) -> None:
    case, sources = CASES[name], []
    for schedule in (None, text):
        bench = Bench()
        case.add(bench, schedule)
        with caplog.at_level(logging.WARNING, "byoc_core"):
            sources.append(bench.module.get_source())
    assert sources[0] == sources[1]
    (message,) = caplog.messages
    assert message.startswith(f"{case.op} has no schedule `")
    assert len(message) < 200
    assert "\x1b" not in message


def test_the_option_limits_the_offered_schedules_of_winograd() -> None:
    def outputs(**options: object) -> set[str]:
        case, bench = CASES["windows"], Bench(**options)
        texts = offered(case, **options)
        (default,) = schedules_of(bench, [case.add(bench)])
        names = {item for text in texts for item in text.split() if item.startswith("num_outputs")}
        return names | {f"num_outputs={default['num_outputs']}" for _ in default if "num_outputs" in default}

    assert outputs() == {"num_outputs=2", "num_outputs=4"}
    assert outputs(winograd="f2") == {"num_outputs=2"}
    assert outputs(winograd="off") == set()


def test_winograd_from_elsewhere_is_not_used_against_the_option() -> None:
    case = CASES["windows"]
    text = next(text for text in offered(case) if "num_outputs=4" in text)
    bench = Bench(winograd="off")
    (fields,) = schedules_of(bench, [case.add(bench, text)])
    assert "num_outputs" not in fields


@pytest.mark.parametrize("options", [{"portable": True}, {"tutorial": True}])
def test_portable_and_tutorial_code_has_no_choice(options: dict[str, object]) -> None:
    assert offered(CASES["windows"], **options) == ()
    if "portable" in options:
        text = next(iter(offered(CASES["pixels"])))
        bench = Bench(**options)
        with_name, without = schedules_of(bench, [CASES["pixels"].add(bench, text), CASES["pixels"].add(bench)])
        assert with_name == without


def test_other_ops_offer_nothing() -> None:
    bench = Bench()
    function = bench.op("nn.softmax", [tensor((4, 5))])
    context = CompileContext("ccompiler", bench.options, bench.constants)
    assert ccompiler.byoc_schedules(function, context) == {}


MODEL = R.parse("""
def main(x: R.Tensor((1, 3, 20, 20)), w: R.Tensor((16, 3, 3, 3)), b: R.Tensor((16,)), v: R.Tensor((16, 16, 3, 3))):
    a = R.nn.conv2d(x, w, padding=(1, 1))
    c = R.nn.bias_add(a, b, axis=1)
    d = R.nn.relu(c)
    e = R.nn.conv2d(d, v, padding=(1, 1))
    f = R.add(e, d)
    return f
""")


def test_a_chosen_schedule_reaches_the_kernels_of_a_build(caplog: pytest.LogCaptureFixture) -> None:
    """Inside of composites too, and with channels last."""
    first = Case("nn.conv2d", (1, 3, 20, 20), (16, 3, 3, 3), kinds("pixel"), SAME, is_constant=False)
    second = Case("nn.conv2d", (1, 16, 20, 20), (16, 16, 3, 3), kinds("pixel"), SAME, is_constant=False)
    chosen = {"main/a": offered(first)[-1], "main/e": offered(second)[-1]}
    generator = np.random.default_rng(1)
    inputs = [generator.normal(size=sizes_of(param)).astype("float32") for param in MODEL["main"].params]
    (expected,) = evaluate_function(MODEL, "main", inputs)
    schedules = []
    for names in ({}, chosen):
        policy = PlacedOps({}, names)
        explanation = byoc_core.explain(MODEL, ["ccompiler"], policy=policy, kernels=True)
        (item,) = explanation.report_data["kernels"]
        kernels = [kernel for kernel in item["kernels"] if "nn.conv2d" in kernel["ops"]]
        schedules.append([kernel["schedule"] for kernel in kernels])
        built = byoc_core.build(MODEL, ["ccompiler"], policy=policy)
        assert {row["outcome"] for row in built.report_data["ops"]} == {"ccompiler"}
        actual = byoc_core.VirtualMachine(built)["main"](*inputs)
        np.testing.assert_allclose(actual, expected, rtol=0, atol=F4_ERROR * np.abs(expected).max())
    assert len(schedules[0]) == 2
    assert all(before != after for before, after in zip(*schedules, strict=True))
    assert caplog.messages == []


CHAIN = R.parse(
    """
def main(x: R.Tensor((1, 16, 56, 56)), w: R.Tensor((48, 16, 1, 1)), v: R.Tensor((48, 1, 3, 3)),
         u: R.Tensor((16, 48, 1, 1))):
    a = R.nn.conv2d(x, w)
    b = R.nn.conv2d(a, v, padding=(1, 1), groups=48)
    c = R.nn.relu(b)
    d = R.nn.conv2d(c, u)
    return d
""".replace("R.nn.relu(R.nn.conv2d(x, w))", "R.nn.conv2d(x, w)")
)


def test_a_depthwise_convolution_of_a_chain_has_the_choice_too() -> None:
    case = Case("nn.conv2d", (1, 48, 56, 56), (48, 1, 3, 3), kinds("depthwise"), {**SAME, "groups": 48})
    x, *weights = (whole_numbers(sizes_of(param), "float32", 3) for param in CHAIN["main"].params)
    module = BindParams(dict(zip("wvu", weights, strict=True)))(CHAIN)
    (expected,) = evaluate_function(module, "main", [x])
    found = set()
    for name in (None, *offered(case)):
        policy = PlacedOps({}, {} if name is None else {"main/b": name})
        explanation = byoc_core.explain(module, ["ccompiler"], policy=policy, kernels=True)
        (item,) = explanation.report_data["kernels"]
        (kernel,) = (kernel for kernel in item["kernels"] if kernel["ops"].count("nn.conv2d") == 3)
        found.add(kernel["schedule"]["depthwise"])
        built = byoc_core.build(module, ["ccompiler"], policy=policy)
        np.testing.assert_array_equal(byoc_core.VirtualMachine(built)["main"](x), expected)
    assert len(found) == len(offered(case)) + 1
