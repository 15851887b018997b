from __future__ import annotations

import ctypes
import re
import shlex
import shutil
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from byoc_core.errors import OptionsError, ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.compiler_process import run_compiler
from byoc_core.native.processors import count_cpus
from byoc_core.native.toolchain import BuildOptions, CompiledLibrary, Toolchain, find_toolchain

pytestmark = [pytest.mark.interpreter, pytest.mark.libraries]


def _cold(tmp_path: Path, name: str) -> Toolchain:
    return Toolchain(find_toolchain().command, build_cache=BuildCache(tmp_path / name))


@pytest.mark.parametrize("options", [BuildOptions(), BuildOptions(2, "generic")])
def test_equal_input_gives_equal_bytes_in_any_folder(
    tmp_path: Path, source: str, options: BuildOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = []
    for name in ("one", "a_longer_name"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("TMPDIR", str(tmp_path / name))
        monkeypatch.chdir(tmp_path / name)
        monkeypatch.setattr("tempfile.tempdir", None)
        products.append(_cold(tmp_path, f"cache_{name}").compile(source, options))
    assert products[0] == products[1]


def test_the_second_build_comes_from_the_cache(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = _cold(tmp_path, "cache")
    first = toolchain.compile(source)
    monkeypatch.setattr("byoc_core.native.library_build.run_compiler", lambda *_, **__: pytest.fail("compiled again"))
    assert toolchain.compile(source) == first


@pytest.mark.parametrize(
    ("macros", "expected"),
    [
        ("__GNUC__ 12", ["max-completely-peel-times=15", "avoid-fma-max-bits=0"]),
        ("__GNUC__ 7", ["max-completely-peel-times=15"]),
        ("__GNUC__ 4\n#define __clang__ 1", []),
        ("_X", []),
    ],
)
def test_gcc_alone_gets_parameters(tmp_path: Path, macros: str, expected: list[str]) -> None:
    script = tmp_path / "cc"
    script.write_text(f"#!/bin/sh\ncat <<END\n#define {macros}\nEND\n", encoding="utf-8")
    script.chmod(0o755)
    flags = Toolchain([str(script)]).flags(BuildOptions())
    assert [flag.removeprefix("--param=") for flag in flags if flag.startswith("--param=")] == expected
    assert {"-fno-tree-pre", "-fno-thread-jumps"}.isdisjoint(flags) == (not expected)


def test_the_target_records_instruction_sets() -> None:
    toolchain = find_toolchain()
    assert set(toolchain.target("generic").features) <= set(toolchain.target("native").features)


def test_a_compiler_error_shows_everything(tmp_path: Path) -> None:
    text = "int one(void) { return 1; }\nint two(void) { return missing; }\nint three(void) { return 3; }\n"
    with pytest.raises(ToolchainError) as caught:
        _cold(tmp_path, "cache").compile(text)
    message = str(caught.value)
    assert message.startswith("C compiler: failed; got exit status 1, expected 0\ncommand: ")
    assert "-ffp-contract=off" in message
    assert "missing" in message
    assert "module.c, line 2:\n" in message
    assert ">     2 | int two(void) { return missing; }" in message
    kept = re.search(r"sources kept in: (.*)", message)
    assert kept
    assert (Path(kept[1]) / "module.c").read_text() == text
    shutil.rmtree(kept[1])


def test_a_compiler_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = _program(tmp_path / "slow", "sleep 20")
    with pytest.raises(ToolchainError) as caught:
        Toolchain([str(script)], timeout_s=0.1).version  # noqa: B018
    assert "got exit status none: timed out after 0.1 s" in str(caught.value)


def _program(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_no_compiler_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("BYOC_CC", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setattr("byoc_core.native.toolchain.find_spec", lambda name: None)
    with pytest.raises(ToolchainError) as caught:
        find_toolchain()
    assert str(caught.value) == (
        "C compiler: none was found (cc, gcc, clang, ziglang). "
        "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler."
    )
    status = Toolchain.status()
    assert (status.ok, status.reason) == (False, "C compiler: none was found (cc, gcc, clang, ziglang)")
    assert status.remedy == "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler."


@pytest.mark.parametrize("variable", ["BYOC_CC", "CC"])
def test_a_chosen_compiler_that_is_missing_is_not_replaced(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BYOC_CC", raising=False)
    monkeypatch.setenv(variable, "no-such-compiler -x")
    with pytest.raises(
        ToolchainError, match=rf"^\${variable}: does not name an executable program: 'no-such-compiler -x'"
    ):
        find_toolchain()


def test_a_chosen_compiler_is_used_with_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    command = find_toolchain().command
    monkeypatch.setenv("BYOC_CC", shlex.join([*command, "-pipe"]))
    assert find_toolchain().command == (*command, "-pipe")
    assert Toolchain.status().ok


def test_a_compiler_that_fails_when_asked_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _program(tmp_path / "failing", "echo 'no licence' >&2; exit 3")
    monkeypatch.setenv("BYOC_CC", str(script))
    with pytest.raises(ToolchainError) as caught:
        find_toolchain().version  # noqa: B018
    assert str(caught.value) == (
        f"C compiler: `{script} --version` failed; got exit status 3, expected 0. "
        "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler.\n"
        f"command: {script} --version\nstderr (its end):\n  no licence"
    )
    assert Toolchain.status().reason == f"C compiler: `{script} --version` failed (exit status 3)"


def test_a_compiler_that_writes_nothing(tmp_path: Path) -> None:
    script = _program(tmp_path / "idle", "exit 0")
    toolchain = Toolchain([str(script)], build_cache=BuildCache(tmp_path / "cache"))
    with pytest.raises(ToolchainError, match=r"^C compiler: did not write the object file\. apt-get install gcc"):
        toolchain.compile("int x;")


@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-o"])
def test_flags_that_would_change_results_are_refused(flag: str) -> None:
    with pytest.raises(OptionsError, match=f"^option `extra_flags`: flag {flag} is not permitted$"):
        BuildOptions(extra_flags=(flag,))


def test_the_optimisation_level_is_checked() -> None:
    with pytest.raises(OptionsError) as caught:
        BuildOptions(opt_level=4)
    assert str(caught.value) == "option `opt_level`: value not permitted; got 4, expected 0 to 3"


SHARED = """\
#include "byoc_ffi.h"

static inline int twice(int x) { return 2 * x; }
int inner(int x);
"""
UNITS = {
    "shared.h": SHARED,
    "inner.c": '#include "shared.h"\nint inner(int x) { return twice(x) + 1; }\n',
    "outer.c": '#include "shared.h"\nBYOC_EXPORT int outer(int x) { return inner(x) + twice(x); }\n',
    "other.c": '#include "shared.h"\n\nBYOC_EXPORT int other(int x) { return inner(twice(x)); }\n',
}


def _changed(old: str, new: str) -> dict[str, str]:
    return {name: text.replace(old, new) for name, text in UNITS.items()}


def _call(library: CompiledLibrary, name: str, value: int, folder: Path) -> int:
    with tempfile.TemporaryDirectory(dir=folder) as place:  # a path of its own: libraries stay loaded
        path = Path(place) / "module.so"
        path.write_bytes(library.data)
        result: int = ctypes.CDLL(str(path))[name](value)
    return result


def test_several_texts_make_one_library(tmp_path: Path) -> None:
    library = _cold(tmp_path, "cache").compile(UNITS, BuildOptions(extra_flags=("-Wall", "-Wextra", "-Werror")))
    assert (_call(library, "outer", 5, tmp_path), _call(library, "other", 5, tmp_path)) == (21, 21)


def test_units_give_equal_bytes_whatever_is_in_the_cache(tmp_path: Path) -> None:
    cold = _cold(tmp_path, "cold").compile(UNITS)
    toolchain = _cold(tmp_path, "warm")
    toolchain.compile(_changed("other", "third"))
    assert toolchain.compile(UNITS) == cold


def test_only_the_units_that_changed_are_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolchain = _cold(tmp_path, "cache")
    toolchain.compile(UNITS)
    ran: list[str] = []

    def run(command: list[str], *_: object, **options: Path) -> object:
        ran.append(command[-1] if "-c" in command else "link")
        return run_compiler(command, 60, folder=options["folder"])

    monkeypatch.setattr("byoc_core.native.library_build.run_compiler", run)
    toolchain.compile(_changed("inner(twice(x))", "inner(twice(x)) + 1"))
    assert ran == ["other.c", "link"]


def test_units_are_compiled_at_the_same_time(tmp_path: Path) -> None:
    """Two units of the same text wait for each other's running compiler."""
    if count_cpus() < 2:
        pytest.skip("there is one processor")
    real = shlex.join(find_toolchain().command)
    script = _program(
        tmp_path / "meeting",
        f"""case "$*" in *" -c -o outer."*|*" -c -o other."*)
  touch {tmp_path}/here.$$
  for i in $(seq 200); do [ $(ls {tmp_path} | grep -c here) -ge 2 ] && break; sleep 0.05; done
  [ $(ls {tmp_path} | grep -c here) -ge 2 ] || exit 9;; esac
exec {real} "$@" """,
    )
    toolchain = Toolchain([str(script)], build_cache=BuildCache(tmp_path / "cache"))
    assert _call(toolchain.compile(UNITS), "outer", 5, tmp_path) == 21


def test_an_error_in_a_unit_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError) as caught:
        _cold(tmp_path, "cache").compile(_changed("inner(twice(x))", "missing"))
    message = str(caught.value)
    assert "other.c, line 3:\n" in message
    assert ">     3 | BYOC_EXPORT int other(int x) { return missing; }" in message
    kept = re.search(r"sources kept in: (.*)", message)
    assert kept
    assert "missing" in (Path(kept[1]) / "other.c").read_text()
    shutil.rmtree(kept[1])


@pytest.mark.parametrize("target", ["linux", "aarch64 linux", "-x"])
def test_a_target_is_a_triple(target: str) -> None:
    with pytest.raises(OptionsError) as caught:
        BuildOptions(target=target)
    assert str(caught.value) == (
        f"option `target`: is not a target triple; got {target!r}, expected a triple such as aarch64-linux-gnu"
    )


def test_another_target_needs_zig(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("BYOC_CC", "CC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("byoc_core.native.toolchain.find_spec", lambda name: None)
    with pytest.raises(ToolchainError) as caught:
        find_toolchain("aarch64-linux-gnu")
    assert str(caught.value) == (
        "C compiler: none was found for target aarch64-linux-gnu; expected zig. pip install ziglang"
    )
