"""`zig cc` from PyPI as the only compiler, and for cross-compilation."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.bundle import BundleSource, build_bundle, read_bundle
from byoc_core.native.cpu import Target
from byoc_core.native.loader import load_library
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain

pytestmark = [
    pytest.mark.interpreter,
    pytest.mark.libraries,
    pytest.mark.skipif(find_spec("ziglang") is None, reason="could not import 'ziglang'"),
]

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
ALL_HEADERS = "".join(f'#include "byoc_{name}.h"\n' for name in ("parallel", "program", "python", "scalar"))
TARGETS = {
    "aarch64-linux-gnu": (b"\x7fELF", "Linux", "aarch64"),
    "x86_64-linux-musl": (b"\x7fELF", "Linux", "x86_64"),
    "x86_64-windows-gnu": (b"MZ", "Windows", "AMD64"),
    "x86_64-macos": (b"\xcf\xfa\xed\xfe", "Darwin", "x86_64"),
    "aarch64-macos": (b"\xcf\xfa\xed\xfe", "Darwin", "arm64"),
}


@pytest.fixture
def zig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toolchain:
    """Return the compiler of a process without a compiler on PATH."""
    for variable in ("BYOC_CC", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    toolchain = find_toolchain()
    assert toolchain.command[1:] == ("-m", "ziglang", "cc")
    return toolchain


@pytest.mark.parametrize("march", ["native", "generic"])
def test_it_compiles_and_the_code_runs(zig: Toolchain, march: str, source: str) -> None:
    compiled = zig.compile(ALL_HEADERS + source, BuildOptions(3, march, WARNINGS))
    assert (march == "generic") == (compiled.target.features == ())
    function = load_library(compiled.data, compiled.target, "test").function("scaled_add", [("float32", (None,))] * 3)
    x, out = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    function(x, x, out)
    np.testing.assert_array_equal(out, 4 * x)


def test_a_named_processor_family_is_recorded(zig: Toolchain, source: str) -> None:
    found = zig.compile(source, BuildOptions(march="x86-64-v3", target="x86_64-linux-gnu")).target
    assert (found.system, found.machine) == ("Linux", "x86_64")
    assert {"avx2", "fma"} <= set(found.features)
    assert "avx512f" not in found.features


def test_the_cache_gives_equal_bytes(zig: Toolchain, tmp_path: Path, source: str) -> None:
    first = Toolchain(zig.command, build_cache=BuildCache(tmp_path / "one")).compile(source)
    assert Toolchain(zig.command, build_cache=BuildCache(tmp_path / "one")).compile(source) == first
    assert Toolchain(zig.command, build_cache=BuildCache(tmp_path / "two")).compile(source) == first


def test_an_error_shows_the_lines_at_fault(zig: Toolchain) -> None:
    text = "int one(void) { return 1; }\nint two(void) { return missing; }\n"
    with pytest.raises(ToolchainError) as caught:
        zig.compile(text)
    message = str(caught.value)
    assert "module.c, line 2:\n" in message
    assert ">     2 | int two(void) { return missing; }" in message
    kept = re.search(r"sources kept in: (.*)", message)
    assert kept
    shutil.rmtree(kept[1])


@pytest.mark.parametrize("target", TARGETS)
def test_code_for_another_machine(zig: Toolchain, target: str, source: str) -> None:
    start, system, machine = TARGETS[target]
    compiled = zig.compile(ALL_HEADERS + source, BuildOptions(3, "native", WARNINGS, target))
    assert compiled.data.startswith(start)
    assert (compiled.target.system, compiled.target.machine) == (system, machine)
    here = Target.local()
    if (system, machine) != (here.system, here.machine):
        with pytest.raises(ArtifactError) as caught:
            load_library(compiled.data, compiled.target, "test")
        assert str(caught.value) == (
            f"library `test`: the native code is for another kind of machine; got {system} on {machine}, "
            f"expected {here.system} on {here.machine}. "
            "Compile the model again on this machine, or for `march` = 'generic'."
        )


@pytest.mark.parametrize("target", TARGETS)
def test_a_bundle_for_another_machine_carries_its_artifact(zig: Toolchain, target: str, tmp_path: Path) -> None:
    constants = (
        '#include "byoc_ffi.h"\nBYOC_EXPORT const void *byoc_constants[1];\n'
        "BYOC_EXPORT const void *first(void) { return byoc_constants[0]; }\n"
    )
    blob = bytes(range(256)) * 3
    path = tmp_path / "model.so"
    build_bundle([BundleSource(constants, (64,))], blob, path, options=BuildOptions(target=target), toolchain=zig)
    assert path.read_bytes().startswith(TARGETS[target][0])
    assert read_bundle(path) == blob
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(ArtifactError, match="the section table is damaged"):
        read_bundle(path)


@pytest.mark.parametrize("target", ["aarch64-linux-nonsense", "pdp11-linux-gnu", "wasm32-wasi"])
def test_a_target_that_zig_or_byoc_does_not_know(zig: Toolchain, target: str, source: str) -> None:
    with pytest.raises(ToolchainError):
        zig.compile(source, BuildOptions(target=target))


def test_other_targets_are_zig_s_where_another_compiler_is_the_usual(make_source: Callable[..., str]) -> None:
    if not find_toolchain().is_zig:
        assert find_toolchain("aarch64-linux-gnu").is_zig
    compiled = find_toolchain("aarch64-linux-gnu").compile(make_source("f"), BuildOptions(target="aarch64-linux-gnu"))
    assert compiled.target == Target("Linux", "aarch64", ())
