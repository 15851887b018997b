"""Exported C in several memories: limits, alignments, places of arguments, constants, called functions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.artifact.plain_c.layout import lay_out_workspaces
from byoc_core.backend.hooks import BackendInfo, LoweringBuilder, Rejection, Support, hookimpl
from byoc_core.errors import MemoryLimitError, OptionsError
from byoc_core.ir import Binding, Function
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.pools import Pool
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler: apt-get install gcc")

_SOURCE = """\
static void stretch(const float *x, int64_t count, const float *w, float *out, int64_t size) {
  for (int64_t i = 0; i < size; ++i) out[i] = x[i % count] * 0.5f + w[0] * (float)(i % 7);
}"""
_READ_ONLY = frozenset({"read"})


class Stretcher:
    """A backend with an extern call for each op: repeats and scales elements, to give any chain of sizes."""

    @hookimpl
    def byoc_backend_info(self) -> BackendInfo:
        return BackendInfo(name="stretcher", dynamic_shapes=True)

    @hookimpl
    def byoc_supports(self, binding: Binding) -> Support | Rejection:
        return Support() if binding.op.name == "matmul" else Rejection("op", "only products")

    @hookimpl
    def byoc_lower(self, function: Function, builder: LoweringBuilder) -> None:
        builder.add_source(_SOURCE)
        for binding in function.bindings:
            left, right = map(builder.buffer, binding.operands)
            out = builder.buffer(binding.result)
            builder.call_extern("stretch", left, left.size, right, out.written(), out.size)


def chain(widths: Sequence[int], rows: str = "4") -> Executable:
    """Return a chain of products between matrices of these widths, with constant second operands."""
    lines = [f"        x{k + 1} = R.matmul(x{k}, w{k})" for k in range(len(widths) - 1)]
    weights = [f'w{k}: R.Tensor(({a}, {b}), "float32")' for k, (a, b) in enumerate(pairwise(widths))]
    text = "\n".join(
        [
            "@R.ir_module",
            "class Module:",
            "    @R.function",
            f'    def main(x0: R.Tensor(({rows}, {widths[0]}), "float32"), {", ".join(weights)}):',
            *lines,
            f"        return x{len(widths) - 1}",
        ]
    )
    executable = byoc_core.build(byoc_core.parse(text), backends=[Stretcher()], strict=True)
    assert all(module.type_key == "csource" for module in executable.modules)
    return executable


def run(folder: Path, executable: Executable, **options: Any) -> str:
    """Export, compile with all warnings and with sanitizers, run the test vector; return the header."""
    executable.export_c(folder, **options)
    flags = "-std=c11 -O1 -Wall -Wextra -Werror -pedantic -ffp-contract=off -fsanitize=address,undefined"
    command = ["make", "-s", "check", "CC=gcc", f"CFLAGS={flags} -fno-sanitize-recover=all"]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "right" in finished.stdout
    return (folder / "model.h").read_text()


def sizes_in(header: str) -> Mapping[str, int]:
    """Return the bytes of each memory stated by a header."""
    return {name.lower(): int(size) for name, size in re.findall(r"#define MODEL_(\w+)_SIZE (\d+)", header)}


def test_often_used_buffers_go_to_the_first_memory_within_the_limit(tmp_path: Path) -> None:
    executable = chain([8, 32, 16, 4, 8])  # intermediates of 512, 256 and 64 bytes
    header = run(tmp_path, executable, pools=[Pool("sram", 320, alignment=16), Pool("dram")])
    sizes = sizes_in(header)
    assert 0 < sizes["sram"] <= 320
    assert sizes["dram"] == 512
    assert "#define MODEL_SRAM_ALIGNMENT 16" in header


def test_arguments_lie_in_the_workspace_and_share_memory(tmp_path: Path) -> None:
    executable = chain([8, 32, 16, 4, 8])
    plain = run(tmp_path / "plain", executable)
    placed = run(tmp_path / "placed", executable, places_arguments=True)
    assert "model_input_x0(void *workspace)" in placed
    assert "model_output_" in placed
    assert "struct model_inputs" not in placed
    # 128 bytes of input and 128 bytes of output are never live beside the two largest intermediates.
    weights = sum(4 * a * b for a, b in ((8, 32), (32, 16), (16, 4), (4, 8)))
    assert sizes_in(placed)["workspace"] <= sizes_in(plain)["workspace"] + weights + 128


def test_largest_sizes_bound_all_memories(tmp_path: Path) -> None:
    executable = chain([8, 32, 16], rows='"n"')
    header = run(tmp_path, executable, max_sizes={"n": 6}, pools=[Pool("sram", 768), Pool("dram")])
    assert sizes_in(header) == {"sram": 768, "dram": 1}
    assert "#define MODEL_MAX_N 6" in header


def test_a_memory_too_small_is_an_error_with_the_bytes_needed(tmp_path: Path) -> None:
    with pytest.raises(MemoryLimitError, match=r"pool `sram` has 256 bytes, not 512"):
        chain([8, 32, 16]).export_c(tmp_path, pools=[Pool("sram", 256)])
    with pytest.raises(MemoryLimitError, match=r"pool `sram`: 768 bytes needed \(lower bound 768\), limit 600 bytes"):
        chain([8, 32, 16, 8]).export_c(tmp_path, pools=[Pool("sram", 600)])
    assert not list(tmp_path.iterdir())


def test_constants_must_fit_into_the_memories_for_reading(tmp_path: Path) -> None:
    module = byoc_core.parse(
        """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32"), w: R.Tensor((8, 16), "float32")):
        a = R.matmul(x, w)
        return a
"""
    )
    weights = {"w": np.arange(128, dtype=np.float32).reshape(8, 16)}
    bound = byoc_core.transform.BindParams(weights)(module)
    executable = byoc_core.build(bound, backends=[Stretcher()], strict=True)
    flash = Pool("flash", 512, accesses=_READ_ONLY)
    run(tmp_path / "fits", executable, pools=[Pool("sram"), flash])
    with pytest.raises(
        MemoryLimitError, match=r"pool `flash`: too small for the constants of the model; got 511 bytes, expected 512"
    ):
        executable.export_c(tmp_path / "no", pools=[Pool("sram"), Pool("flash", 511, accesses=_READ_ONLY)])


@pytest.mark.parametrize(
    ("pools", "text"),
    [
        ([Pool("flash", accesses=_READ_ONLY)], "has no pool with access `write`"),
        ([Pool("fast memory")], "has a name unusable in C"),
        ([Pool("byoc_x")], "has a name unusable in C"),
        ([Pool("a"), Pool("a")], "is given twice"),
    ],
)
def test_impossible_memories_are_refused(tmp_path: Path, pools: Sequence[Pool], text: str) -> None:
    with pytest.raises(OptionsError, match=text):
        chain([8, 16, 8]).export_c(tmp_path, pools=pools)


def test_memories_with_limits_need_the_largest_sizes(tmp_path: Path) -> None:
    executable = chain([8, 32, 16], rows='"n"')
    with pytest.raises(OptionsError, match="are missing for the symbolic sizes of function `main`: n"):
        executable.export_c(tmp_path, pools=[Pool("sram", 4096)])


@settings(max_examples=40)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=7), st.integers(0, 3000), st.booleans())
def test_simultaneously_live_buffers_never_share_bytes(widths: list[int], limit: int, places: bool) -> None:
    executable = chain(widths)
    pools = [Pool("sram", limit, alignment=4), Pool("dram", alignment=16)]
    layouts = lay_out_workspaces(executable.program, None, pools, places_arguments=places)
    function, layout = executable.program.functions[0], layouts["main"]
    assert all(isinstance(nbytes, int) for nbytes in layout.nbytes)
    sizes = [int(str(nbytes)) for nbytes in layout.nbytes]
    assert sizes[0] <= limit
    found = executable.memory_map()
    assert found.intervals is not None
    spans = []
    for buffer, interval in zip(found.buffers, found.intervals, strict=True):
        place = layout.tensors[buffer.registers[0] - (function.first_view - len(function.tensors))]
        assert isinstance(place.offset, int)
        assert place.offset % pools[place.pool].alignment == 0
        assert place.offset + interval.nbytes <= sizes[place.pool]
        spans.append((place.pool, place.offset, interval))
    for index, (left, offset, a) in enumerate(spans):
        for right, other, b in spans[:index]:
            if left == right and a.start <= b.end and b.start <= a.end:
                assert offset + a.nbytes <= other or other + b.nbytes <= offset


def test_the_largest_sizes_of_called_functions_hold_in_each_call(tmp_path: Path) -> None:
    module = byoc_core.parse(
        """
@R.ir_module
class Module:
    @R.function
    def inner(x: R.Tensor(("m", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        a = R.matmul(x, w)
        b = R.matmul(a, w)
        return b
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
        a = inner(x, w)
        b = R.matmul(a, w)
        return b
"""
    )
    executable = byoc_core.build(module, backends=[Stretcher()], strict=True)
    assert {function.name for function in executable.program.functions} == {"inner", "main"}
    assert "model_run(" in run(tmp_path / "symbolic", executable)
    with pytest.raises(OptionsError, match="too small for `m` of function `inner`, called by `main`"):
        executable.export_c(tmp_path / "small", max_sizes={"n": 9, "m": 8})
    header = run(tmp_path / "bounded", executable, max_sizes={"n": 9, "m": 9})
    assert sizes_in(header)["workspace"] == 2 * 320
