"""Generated programs: shared kernels, fused ops, symbolic sizes, the saved form, and damage to the saved form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core import VirtualMachine
from byoc_core.errors import ArtifactError, UntrustedCodeError
from byoc_core.runtime.hooks import LoadContext
from byoc_opencl.backend import byoc_codegen
from byoc_opencl.module import OpenClModule
from byoc_opencl.program import decode, encode
from byoc_opencl.runtime import byoc_load_module, byoc_save_module
from byoc_opencl.source import complete_source

LAYERS = """
def main(x: R.Tensor(("n", 3, 12, 12), "float32"), v: R.Tensor((16, 3, 3, 3), "float32"),
         w: R.Tensor((32, 16, 3, 3), "float32"), b: R.Tensor((16,), "float32")):
    a = R.nn.conv2d(x, v, padding=(1, 1))
    s = R.nn.bias_add(a, b, axis=1)
    r = R.nn.relu(s)
    c = R.nn.conv2d(r, w, padding=(1, 1))
    d = R.nn.relu(c)
    e = R.permute_dims(d, axes=(0, 2, 3, 1))
    f = R.reshape(e, shape=("n", 144, 32))
    g = R.nn.softmax(f, axis=2)
    return g
"""


def compile_text(text: str = LAYERS) -> OpenClModule:
    """Return the module of a function as a region."""
    result = byoc_codegen([byoc_core.parse(text)["main"].with_attrs(global_symbol="layers")])
    assert result.rejections == {}
    assert isinstance(result.module, OpenClModule)
    return result.module


def test_elementwise_ops_are_part_of_the_kernel_before() -> None:
    (function,) = compile_text().program.functions
    assert [launch.kernel for launch in function.launches] == [
        "nn_conv2d_nn_bias_add_nn_relu_1",
        "nn_conv2d_nn_relu_1",
        "permute_dims_1",
        "nn_softmax_1",
    ]


def test_layers_of_other_sizes_share_a_kernel() -> None:
    lines = [f"    y{k} = R.nn.dense(y{k - 1}, w{k})" for k in range(1, 4)]
    sizes = (20, 30, 40, 50)
    weights = [f'w{k}: R.Tensor(({sizes[k]}, {sizes[k - 1]}), "float32")' for k in range(1, 4)]
    head = f'def main(y0: R.Tensor((10, {sizes[0]}), "float32"), {", ".join(weights)}):'
    program = compile_text("\n".join([head, *lines, "    return y3"])).program
    assert program.source.count("__kernel void") == 1
    assert len(program.functions[0].launches) == 3


@pytest.mark.usefixtures("needs_device")
def test_symbolic_sizes_are_arguments() -> None:
    machine = VirtualMachine(byoc_core.build(byoc_core.parse(LAYERS), ["opencl"], fallback="error"))
    reference = VirtualMachine(byoc_core.build(byoc_core.parse(LAYERS), []))
    rng = np.random.default_rng(0)
    weights = [0.1 * rng.standard_normal(shape, np.float32) for shape in ((16, 3, 3, 3), (32, 16, 3, 3), (16,))]
    for n in (1, 5, 0):
        x = rng.standard_normal((n, 3, 12, 12), np.float32)
        found, expected = machine["main"](x, *weights), reference["main"](x, *weights)
        assert isinstance(found, np.ndarray)
        assert found.shape == (n, 144, 32)
        np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-18)


def test_a_long_chain_of_ops_is_one_kernel_and_is_read_again() -> None:
    lines = [f"    v{number + 1} = R.{('abs', 'negative')[number % 2]}(v{number})" for number in range(300)]
    text = "\n".join(["def main(v0: R.Tensor((4,))):", *lines, "    return v300"])
    payload = byoc_save_module(compile_text(text))
    program = decode(payload, "payload")
    assert [len(function.launches) for function in program.functions] == [1]
    assert program.functions[0].launches[0].kernel == "abs_negative_abs_negative_abs_negative_abs_negative_and_292_1"
    assert encode(program) == payload


def test_equal_functions_give_equal_bytes_and_the_saved_form_is_read_again() -> None:
    first, second = (byoc_save_module(compile_text()) for _ in range(2))
    assert first == second
    assert encode(decode(first, "payload")) == first


def test_loading_needs_permission_for_native_code() -> None:
    payload = byoc_save_module(compile_text())
    with pytest.raises(UntrustedCodeError, match="holds native code"):
        byoc_load_module(payload, LoadContext())
    assert byoc_load_module(payload, LoadContext(allow_native=True)).function_names == ("layers",)


def _first_launch(document: dict[str, Any]) -> dict[str, Any]:
    launch: dict[str, Any] = document["functions"][0]["launches"][0]
    return launch


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda document: _first_launch(document).update(kernel="absent"), "launches the absent kernel `absent`"),
        (lambda document: _first_launch(document)["memory"].__setitem__(0, 99), "passes absent memory"),
        (
            lambda document: _first_launch(document)["memory"].pop(),
            "arguments to kernel `nn_conv2d_nn_bias_add_nn_relu_1`",
        ),
        (
            lambda document: _first_launch(document)["sizes"].append(1),
            "arguments to kernel `nn_conv2d_nn_bias_add_nn_relu_1`",
        ),
        (lambda document: _first_launch(document).update(memory=[-1]), "greater than or equal to 0"),
        (lambda document: _first_launch(document)["sizes"].__setitem__(0, "q"), "needs `q`, a size in no shape"),
        (lambda document: _first_launch(document).update(rounds="n//"), "n//"),
        (lambda document: document["functions"][0].update(workspace_nbytes="q"), "needs `q`"),
        (lambda document: document["functions"].append(document["functions"][0]), "the same name"),
        (lambda document: document["functions"][0].update(extra=1), "Extra inputs are not permitted"),
        (lambda document: document.pop("source"), "source: Field required"),
    ],
)
def test_damage_is_refused_with_the_place(damage: Callable[[dict[str, Any]], object], reason: str) -> None:
    document = json.loads(byoc_save_module(compile_text()))
    damage(document)
    with pytest.raises(ArtifactError) as caught:
        decode(json.dumps(document).encode(), "model.byoc")
    assert str(caught.value).startswith("model.byoc: is no program for OpenCL devices")
    assert reason in str(caught.value)


def test_a_part_outside_of_the_workspace_is_refused() -> None:
    text = LAYERS.replace('"n"', "4")
    document = json.loads(byoc_save_module(compile_text(text)))
    document["functions"][0]["parts"][0]["offset"] = document["functions"][0]["workspace_nbytes"]
    with pytest.raises(ArtifactError, match="has memory outside of its workspace"):
        decode(json.dumps(document).encode(), "model.byoc")


def test_a_source_is_complete_without_files() -> None:
    text = complete_source('#include "byoc_cl.h"\n')
    assert "byoc_exp_f32" in text
    assert '#include "byoc_' not in text
