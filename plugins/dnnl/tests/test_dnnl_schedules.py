"""Schedules of convolutions: other layouts and implementations compute the same, are used by name, and travel along."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.artifact import Executable
from byoc_core.backend.registry import backends
from byoc_core.errors import ArtifactError
from byoc_core.ir import IRModule
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.transform import BindParams, evaluate_function
from byoc_dnnl.engine import DnnlModule
from byoc_dnnl.runtime import byoc_check_payload, byoc_save_module

from plugins.dnnl.tests.dnnl_region import need_avx512

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "windows": ((1, 32, 14, 14), (48, 32, 3, 3), "padding=(1, 1)"),
    "pixels": ((2, 64, 9, 9), (32, 64, 1, 1), ""),
    "strided": ((1, 24, 15, 15), (40, 24, 5, 5), "padding=(2, 2), strides=(2, 2)"),
    "depthwise": ((1, 48, 12, 12), (48, 1, 3, 3), "padding=(1, 1), groups=48"),
    "last": ((1, 14, 14, 32), (48, 32, 3, 3), 'padding=(1, 1), data_layout="NHWC"'),
}


PRODUCTS: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "row": ((1, 300), (200, 300), "dense"),
    "rows": ((40, 96), (128, 96), "dense"),
    "transposed by default": ((16, 1024), (1536, 1024), "dense"),
    "computed": ((40, 96), (96, 64), "matmul"),
}


def module_of(case: str) -> tuple[IRModule, np.ndarray[Any, Any]]:
    """Return a convolution with bias and ReLU, and an image; numbers are small and whole: sums are exact."""
    image, weight, attrs = CASES[case]
    axis = 3 if "NHWC" in attrs else 1
    module = R.parse(f"""
def main(x: R.Tensor({image}), w: R.Tensor({weight}), b: R.Tensor(({weight[0]},))):
    a = R.nn.conv2d(x, w, {attrs})
    c = R.nn.bias_add(a, b, axis={axis})
    d = R.nn.relu(c)
    return d
""")
    generator = np.random.default_rng(1)
    x, w, b = (generator.integers(-4, 5, shape).astype("float32") for shape in (image, weight, weight[:1]))
    return BindParams({"w": w, "b": b})(module), x


def offered(module: IRModule) -> Sequence[str]:
    handle = backends().get("dnnl")
    main = module["main"]
    alone = module.with_functions({"main": main})
    return next(iter(handle.schedules(main, handle.context(alone)).values()), ())


def built(module: IRModule, schedules: Mapping[str, str]) -> tuple[Executable, DnnlModule]:
    executable = byoc_core.build(module, ["dnnl"], policy=PlacedOps({}, schedules))
    assert {row["outcome"] for row in executable.report_data["ops"]} == {"dnnl"}
    (found,) = (item for item in executable.modules if isinstance(item, DnnlModule))
    return executable, found


@pytest.mark.parametrize("case", CASES)
def test_each_offered_schedule_computes_the_convolution_and_is_used(case: str) -> None:
    module, x = module_of(case)
    (expected,) = evaluate_function(module, "main", [x])
    names = offered(module)
    assert len(set(names)) == len(names) > 0
    sources = {built(module, {})[1].get_source()}
    for name in names:
        executable, found = built(module, {"main/a": name})
        assert name.partition("impl=")[2] in found.get_source()
        sources.add(found.get_source())
        np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), expected, err_msg=name)
    assert len(sources) == len(names) + 1
    assert not any("ref" in name for name in names)


@pytest.mark.parametrize("case", PRODUCTS)
def test_each_offered_schedule_computes_the_product_and_is_used(case: str) -> None:
    if case == "computed":
        need_avx512()  # elsewhere oneDNN has a single implementation
    left, right, op = PRODUCTS[case]
    spelled = "R.nn.dense(x, w)" if op == "dense" else "R.matmul(x, w)"
    module = R.parse(f"""
def main(x: R.Tensor({left}), w: R.Tensor({right})):
    a = {spelled}
    c = R.nn.relu(a)
    return c
""")
    generator = np.random.default_rng(1)
    inputs = [generator.integers(-4, 5, shape).astype("float32") for shape in (left, right)]
    if op == "dense":
        module, inputs = BindParams({"w": inputs[1]})(module), inputs[:1]
    (expected,) = evaluate_function(module, "main", inputs)
    names = offered(module)
    assert len(set(names)) == len(names) > 0
    sources = {built(module, {})[1].get_source()}
    for name in names:
        executable, found = built(module, {"main/a": name})
        assert name.partition("impl=")[2] in found.get_source()
        sources.add(found.get_source())
        np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](*inputs), expected, err_msg=name)
    assert len(sources) > 1


@pytest.mark.parametrize("name", ["", "nonsense", "layout=any impl=ref:any", "layout=last\x1b[31m" + "x" * 1000])
def test_other_names_change_nothing_but_the_log(caplog: pytest.LogCaptureFixture, name: str) -> None:
    module, x = module_of("windows")
    usual = built(module, {})[1].get_source()
    with caplog.at_level(logging.WARNING, "byoc_core"):
        executable, found = built(module, {"main/a": name})
    assert found.get_source() == usual
    assert caplog.messages
    assert all(text.startswith("nn.conv2d has no schedule `") and len(text) < 200 for text in caplog.messages)
    assert not any("\x1b" in text for text in caplog.messages)
    (expected,) = evaluate_function(module, "main", [x])
    np.testing.assert_array_equal(byoc_core.VirtualMachine(executable)["main"](x), expected)


def test_artifacts_keep_schedules(tmp_path: Path) -> None:
    module, x = module_of("windows")
    name = offered(module)[-1]
    executable, found = built(module, {"main/a": name})
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc")
    (again,) = (item for item in loaded.modules if isinstance(item, DnnlModule))
    assert again.get_source() == found.get_source() != built(module, {})[1].get_source()
    (expected,) = evaluate_function(module, "main", [x])
    np.testing.assert_array_equal(byoc_core.VirtualMachine(loaded)["main"](x), expected)


def test_payloads_without_schedules_are_plain_documents() -> None:
    module, _ = module_of("windows")
    assert byoc_save_module(built(module, {})[1]).startswith(b"{")


@pytest.mark.parametrize("text", ["3", "[]", '{"f": 3}', '{"f": {"a": 3}}', "{", "[" * 100_000, ""])
def test_malformed_schedules_of_payloads_are_errors(text: str) -> None:
    module, _ = module_of("windows")
    document = byoc_save_module(built(module, {})[1])
    with pytest.raises(ArtifactError, match="has malformed schedules"):
        byoc_check_payload(f"schedules={text}\n".encode() + document)
    byoc_check_payload(b'schedules={"other": {"a": "nonsense"}}\n' + document)


def test_other_ops_offer_nothing() -> None:
    module = R.parse("""
def main(x: R.Tensor((4, 5))):
    a = R.nn.softmax(x)
    return a
""")
    assert offered(module) == ()
