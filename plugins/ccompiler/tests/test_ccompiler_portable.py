"""Portable C: accepted by strict compilers, the same on every machine, without extensions, right on 32-bit machines.

The kernels of all op families are compared with the references by the tables of the other tests: there ``portable``
stands among the processors.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.portable import has_large_arrays, move_arrays
from byoc_ccompiler.support import reject_step
from byoc_ccompiler.vector_unit import VectorUnit
from byoc_core.artifact import Executable
from byoc_core.authoring import c
from byoc_core.dims import ceildiv, symbol
from byoc_core.errors import ByocError
from byoc_core.ir import tensor
from byoc_core.native.plain_c import PLAIN_C, plain_c_headers
from byoc_core.native.toolchain import Toolchain
from byoc_core.ops import default_ops
from byoc_core.ops.cases import canonical_cases, new_function
from byoc_core.runtime.csource import CSourceModule

from benchmarks.models import load_model
from plugins.ccompiler.tests.bench import PORTABLE, WARNINGS, Bench
from plugins.ccompiler.tests.stack_use import measure_stack

WRITE = c.MemoryAccess.WRITE
FRAME_NBYTES = 4 << 10
STRICT = ("-std=c11", "-O2", *WARNINGS, "-pedantic-errors", "-ffp-contract=off", "-fno-math-errno")
CHAIN_NBYTES = 4 << 10
EXTENSIONS = ("__attribute__", "__builtin", "__typeof__", "__asm__", "vector_size", "_Pragma", "#pragma", "immintrin")
MODELS = {"lenet": "array", "mlp_1": "object", "lstm": "object", "quantised_convnet": "object"}
"""Models of the benchmarks, with the form of the constants: the arrays of the others are megabytes of text."""

MACHINES = {
    "arm": ("-target", "arm-linux-musleabihf", "-mcpu=cortex_a7"),
    "aarch64": ("-target", "aarch64-linux-musl"),
}
UNKNOWN = ("-U__GNUC__", "-U__clang__", *(f"-D__{name}__=1" for name in ("FMA", "AVX2", "AVX512F", "AVXVNNI")))
"""The macros of an unknown compiler for a processor with many instructions."""

SECTION = re.compile(r"\[ *(\d+)\] \S+ +(?:PROGBITS|NOBITS) +\S+ \S+ (\S+) \S+ +([A-Z]*) ")
SYMBOL = re.compile(r"(\d+) (\w+)$", re.MULTILINE)
"""The number, the bytes and the flags of a section, and the section and the name of a symbol, as printed by readelf."""

MICROCONTROLLER = ("-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4")
LIBRARY_FUNCTIONS = {"copysignf", "memcpy", "memmove", "memset", "rintf"}
"""The functions of libc and libm called by the models: none calls others."""


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function exporting a model of the benchmarks as portable C, once."""
    folders: dict[str, Path] = {}

    def exported(name: str) -> Path:
        if name not in folders:
            folders[name] = tmp_path_factory.mktemp(name)
            _build(name).export_c(folders[name], constants=MODELS.get(name, "object"))
        return folders[name]

    return exported


def _build(name: str, **options: object) -> Executable:
    """Return a compiled model of the benchmarks; portable without options."""
    model, _ = load_model(name)
    executable = byoc_core.build(
        byoc_core.from_onnx(model), backends=["ccompiler"], options={"ccompiler": options or {"portable": True}}
    )
    assert [module.type_key for module in executable.modules if module.type_key == "csource"]
    return executable


def _compiler(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _zig() -> tuple[str, ...]:
    if find_spec("ziglang") is None:
        pytest.skip("could not import 'ziglang'")
    return (sys.executable, "-m", "ziglang", "cc")


def _run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _check_run(folder: Path, compiler: tuple[str, ...], program: Path, emulator: tuple[str, ...] = ()) -> None:
    """Compile an export, and run its test vector."""
    sources = sorted(folder.glob("*.c"))
    _run(*compiler, "-I.", *sources, "-o", program, "-lm", cwd=folder)
    lines = _run(*emulator, program).splitlines()
    assert lines
    assert all(line.endswith(": right") for line in lines), lines


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("name", MODELS)
def test_strict_compilers_accept_exports_and_the_frames_are_small(
    export: Callable[[str], Path], name: str, compiler: str, tmp_path: Path
) -> None:
    limit = f"-Wframe-larger-than={FRAME_NBYTES}"
    _check_run(export(name), (_compiler(compiler), *STRICT, limit), tmp_path / "program")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", MODELS)
def test_exports_are_right_on_other_machines(
    export: Callable[[str], Path], name: str, machine: str, tmp_path: Path
) -> None:
    emulator = _compiler(f"qemu-{machine}")
    _check_run(export(name), (*_zig(), *STRICT, *MACHINES[machine], "-static"), tmp_path / "program", (emulator,))


@pytest.mark.parametrize("name", MODELS)
def test_vector_types_are_right_on_another_machine(name: str, tmp_path: Path) -> None:
    """C for any processor of an architecture is C for any architecture with gcc, clang or zig."""
    emulator = _compiler("qemu-aarch64")
    _build(name, march="generic").export_c(tmp_path / "model", constants="object")
    compiler = (*_zig(), *STRICT, *MACHINES["aarch64"], "-static")
    _check_run(tmp_path / "model", compiler, tmp_path / "program", (emulator,))


@pytest.mark.parametrize("name", MODELS)
def test_microcontrollers_keep_weights_in_read_only_memory(
    export: Callable[[str], Path], name: str, tmp_path: Path
) -> None:
    """The machine has no libc; the headers are of another machine with the same types."""
    readelf, zig, limit = _compiler("readelf"), _zig(), f"-Wframe-larger-than={FRAME_NBYTES}"
    spec = find_spec("ziglang")
    assert spec is not None
    includes = Path(*spec.submodule_search_locations or (), "lib", "libc", "include")
    headers = [flag for part in ("arm-linux", "generic") for flag in ("-isystem", includes / f"{part}-musl")]
    weights: list[str] = []
    for source in ("model.c", "model_module0.c", "model_constants.c"):
        target = tmp_path / f"{source}.o"
        _run(*zig, *MICROCONTROLLER, *STRICT, limit, *headers, "-I.", "-c", source, "-o", target, cwd=export(name))
        sections = {n: (int(size, 16), flags) for n, size, flags in SECTION.findall(_run(readelf, "-SW", target))}
        assert any(size > 0 and flags == "AX" for size, flags in sections.values()) or source == "model_constants.c"
        assert not [size for size, flags in sections.values() if size > 0 and "W" in flags]
        found = SYMBOL.findall(_run(readelf, "-sW", target))
        weights += (sections[number][1] for number, symbol in found if symbol.startswith("model_constant_"))
    assert weights
    assert set(weights) == {"A"}


@pytest.mark.parametrize("name", [*MODELS, "light_squeezenet"])
def test_the_deepest_chain_of_calls_needs_little_stack(export: Callable[[str], Path], name: str) -> None:
    """The pages state the figures; without optimisation, frames are larger and more functions are called."""
    _compiler("gcc")
    for level in ("-O0", "-Os", "-O2", "-O3"):
        use = measure_stack(export(name), ["model.c", "model_module0.c"], "model_run", level)
        assert 0 < use.frame_nbytes < use.chain_nbytes < CHAIN_NBYTES
        assert use.foreign <= LIBRARY_FUNCTIONS


@pytest.mark.parametrize(
    "body",
    [
        "int32_t f(int32_t n) { return n ? f(n - 1) + f(n / 2) : g(n); }",
        "int32_t f(int32_t n) { int32_t (*volatile h)(int32_t) = g; return h(n); }",
        "int32_t f(int32_t n) { volatile char a[n]; a[0] = 1; return g(a[0]); }",
    ],
    ids=["recursion", "pointer", "array"],
)
def test_chains_without_bound_are_noticed(body: str, tmp_path: Path) -> None:
    _compiler("gcc")
    (tmp_path / "f.c").write_text(f"#include <stdint.h>\nint32_t g(int32_t n);\n{body}\n")
    with pytest.raises(ValueError, match=r"without bound|unknown size"):
        measure_stack(tmp_path, ["f.c"], "f", "-O0")


@pytest.mark.parametrize("name", MODELS)
def test_a_compiler_without_extensions_runs_exports(name: str, tmp_path: Path) -> None:
    compiler = _compiler("tcc")
    _build(name).export_c(tmp_path, constants="array")
    _check_run(tmp_path, (compiler, "-Wall", "-Werror"), tmp_path / "program")


def test_the_macros_of_gcc_have_extensions(export: Callable[[str], Path]) -> None:
    """Other texts have no extensions because of the removed macro, and not because of the search."""
    assert _extensions(export("lenet"), "model_module0.c") != []
    assert _extensions(export("lenet"), "model_module0.c", *UNKNOWN) == []


@pytest.fixture(scope="module")
def all_ops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a source with the kernels of all canonical cases, as in an export."""

    def verified(function: c.Function, *args: Any, **options: Any) -> str:
        c.verify(replace(function, name="f"))
        return c.print_function(function, *args, **options)

    bench = Bench(march=PORTABLE)
    _add_all(bench)
    assert len(bench.functions) > 500
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("byoc_ccompiler.kernel.print_function", verified)
        patch.setattr(CSourceModule, "build", lambda self: None)
        text = bench.module.get_source()
    folder = tmp_path_factory.mktemp("all_ops")
    for file, header in plain_c_headers({"all.c": text}).items():
        (folder / file).write_text(header)
    (folder / "all.c").write_text(f'#define {PLAIN_C}\n#include "byoc_ffi.h"\n#include "byoc_scalar.h"\n{text}')
    return folder


def test_all_ops_have_a_form_without_extensions(all_ops: Path) -> None:
    text = (all_ops / "all.c").read_text()
    assert [word for word in (*EXTENSIONS, "vec_", "_mm", "BYOC_SHUFFLE", "byoc_parallel") if word in text] == []
    assert _extensions(all_ops, "all.c", *UNKNOWN) == []


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_strict_compilers_accept_all_ops(all_ops: Path, compiler: str, tmp_path: Path) -> None:
    _run(_compiler(compiler), *STRICT, "-O1", "-I.", "-c", "all.c", "-o", tmp_path / "all.o", cwd=all_ops)


def _add_all(bench: Bench) -> None:
    """Add a function for each canonical case supported by the backend."""
    for name, cases in canonical_cases(default_ops()).items():
        for case in cases:
            function, binding = new_function(
                default_ops()[name], case.types(), case.attrs, name=f"f{len(bench.functions)}"
            )
            if reject_step(binding, tutorial=False) is None:
                bench.functions.append(function)


def _extensions(folder: Path, source: str, *flags: str) -> list[str]:
    """Return the lines with extensions of C in the preprocessed text, without lines of system headers."""
    text = _run(_compiler("gcc"), "-std=c11", *flags, "-I.", "-E", source, cwd=folder)
    found, is_own = [], False
    for line in text.splitlines():
        if line.startswith("# "):
            is_own = not line.split('"')[1].startswith(("/", "<"))
        elif is_own and any(word in line for word in EXTENSIONS):
            found.append(line)
    return found


def test_the_text_depends_on_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("portable C asks for a machine")

    texts = []
    for is_other in (False, True):
        if is_other:
            monkeypatch.setattr(VectorUnit, "of_features", refuse)
            monkeypatch.setattr(Toolchain, "target", refuse)
        bench = Bench(march=PORTABLE)
        bench.op("nn.conv2d", [tensor((1, 8, 9, 9)), tensor((12, 8, 3, 3))])
        monkeypatch.setattr(CSourceModule, "build", lambda self: None)
        texts.append(bench.module.get_source())
    assert texts[0] == texts[1]


def test_exports_of_portable_c_have_no_flags_and_no_binary_constants(tmp_path: Path) -> None:
    files = {path.name: path for path in _build("lenet").export_c(tmp_path)}
    assert "-march" not in files["Makefile"].read_text()
    assert not [name for name in files if name.endswith(".bin")]
    assert "__asm__" not in files["model_constants.c"].read_text()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"march": "x86-64-v3"}, "`march` is x86-64-v3, but portable C depends on no processor: leave `march` out"),
        ({"tutorial": True}, "`tutorial` and `portable` exclude each other"),
        ({"precision": "bfloat16"}, "`precision` is bfloat16, but portable C has float32 products only"),
    ],
)
def test_options_of_machines_are_refused(options: dict[str, Any], problem: str) -> None:
    model, _ = load_model("lenet")
    with pytest.raises(ByocError) as caught:
        byoc_core.build(
            byoc_core.from_onnx(model), backends=["ccompiler"], options={"ccompiler": {"portable": True, **options}}
        )
    assert problem in str(caught.value)


def test_large_arrays_of_separate_blocks_share_scratch_memory() -> None:
    """The scratch memory already has ``n`` numbers; each array begins at a multiple of 64 bytes."""
    scratch, out = c.Buffer("scratch", "float32", WRITE), c.Buffer("out", "float64", WRITE)
    outer, first, second = (c.Buffer(name, "float64", WRITE, 65) for name in ("outer", "first", "second"))
    small, pointers = c.Buffer("small", "float32", WRITE, 64), c.PointerArray("pointers", "float32", WRITE, 99)
    i, zero = c.Variable("i"), c.Literal(0, c.CType("float64"))
    stores = [c.Store(array, i, zero) for array in (outer, first, second)]
    block: c.Block = (
        *map(c.LocalArray, (outer, small, pointers)),
        c.For(i, c.Size(0), c.Size(9), (c.LocalArray(first, is_zeroed=True), *stores[:2])),
        c.For(i, c.Size(0), c.Size(9), (c.LocalArray(second), stores[0], stores[2])),
        c.Store(out, c.Size(0), outer[0]),
    )
    assert has_large_arrays(block)
    moved, end = move_arrays(block, scratch, symbol("n"))
    aliases = {item.buffer: item.offset for item in c.statements_in(moved) if isinstance(item, c.Alias)}
    begin = ceildiv(symbol("n"), 16) * 16
    assert aliases == {outer: c.Size(begin), first: c.Size(begin + 144), second: c.Size(begin + 144)}
    assert end == begin + 288
    arrays = [item.buffer for item in c.statements_in(moved) if isinstance(item, c.LocalArray)]
    assert arrays == [small, pointers]
    assert [item for item in c.statements_in(moved) if isinstance(item, c.Clear)] == [
        c.Clear(first, c.Size(0), c.Size(65))
    ]
    assert not has_large_arrays(moved)


def test_large_arrays_of_kernels_are_in_the_workspace() -> None:
    bench = Bench(march=PORTABLE)
    function = bench.op("nn.max_pool2d", [tensor((1, 9, 9, 99))], pool_size=(3, 3), layout="NHWC")
    x = np.random.default_rng(1).standard_normal((1, 9, 9, 99)).astype("float32")
    (actual,) = bench.run(function, x)
    np.testing.assert_array_equal(actual, bench.reference(function, x)[0])
    assert bench.module.call_traits(function.name).workspace_nbytes == 1024
