"""Chains of quantisations compile to vectors: no limit of a range becomes a branch in a loop."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from byoc_core import native
from byoc_core.ir import tensor
from byoc_core.native.build_options import BuildOptions
from byoc_core.native.toolchain import find_toolchain

from plugins.ccompiler.tests.bench import Bench


def _report(bench: Bench, folder: Path, kind: str) -> list[str]:
    """Return the messages of gcc about vectors in the generated C: of `optimized` loops, or of `missed` vectors."""
    toolchain = find_toolchain()
    if "Free Software Foundation" not in toolchain.version:
        pytest.skip("the report is GCC's")
    source = folder / "chain.c"
    source.write_text(bench.module.get_source(), "utf-8")
    command = [*toolchain.command, *toolchain.flags(BuildOptions(opt_level=2)), f"-fopt-info-vec-{kind}"]
    command += [f"-I{Path(native.__file__).parent}", "-c", str(source), "-o", str(folder / "chain.o")]
    return subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()


def _branches(bench: Bench, folder: Path) -> list[str]:
    """Return the messages of gcc about branches in loops of the generated C."""
    messages = _report(bench, folder, "missed")
    assert any("missed" in line for line in messages), "gcc tells about the loops over calls at least"
    return [line for line in messages if "control flow in loop" in line]


def _num_vectorised(bench: Bench, folder: Path) -> int:
    """Return the number of loops with vectors."""
    return sum("loop vectorized" in line for line in _report(bench, folder, "optimized"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_a_chain_of_quantisations_has_no_branches(dtype: str, tmp_path: Path) -> None:
    bench = Bench(opt_level=2)
    builder = bench.builder()
    value = builder.param("x", tensor((32, 100), "float32"))
    zero = builder.const(np.zeros((), dtype))
    for number, op in enumerate(("erf", "negative", "erf", "negative")):
        scale = builder.const(np.array(0.01 + number * 0.003, "float32"))
        quantised = builder.emit("quantize", value, scale, zero)
        value = builder.emit(op, builder.emit("dequantize", quantised, scale, zero))
    bench.add(builder, builder.emit("quantize", value, scale, zero))
    assert _branches(bench, tmp_path) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["nn.relu", "nn.gelu", "nn.hard_swish", "nn.swish", "tanh", "sigmoid"])
def test_activations_of_halves_have_no_branches(op: str, dtype: str, tmp_path: Path) -> None:
    bench = Bench(opt_level=2)
    builder = bench.builder()
    value = builder.param("x", tensor((32, 100), dtype))
    bench.add(builder, builder.emit("negative", builder.emit(op, value)))
    assert _branches(bench, tmp_path) == []


def _unary_chain(op: str, dtype: str) -> Bench:
    bench = Bench(opt_level=2)
    builder = bench.builder()
    bench.add(builder, builder.emit("negative", builder.emit(op, builder.param("x", tensor((32, 100), dtype)))))
    return bench


@pytest.mark.parametrize("op", ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"])
def test_loops_over_trigonometry_have_vectors(op: str, tmp_path: Path) -> None:
    assert _num_vectorised(_unary_chain(op, "float32"), tmp_path) > 0


def test_loops_over_functions_of_the_c_library_have_none(tmp_path: Path) -> None:
    assert _num_vectorised(_unary_chain("sin", "float64"), tmp_path) == 0
