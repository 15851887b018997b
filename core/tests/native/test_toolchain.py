from __future__ import annotations

import re
import shlex
import shutil
import stat
import sys
from pathlib import Path

import pytest
from byoc_core.errors import OptionsError, ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.toolchain import BuildOptions, Toolchain, find_toolchain


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
    monkeypatch.setattr(toolchain, "_build", lambda *_: pytest.fail("compiled again"))
    assert toolchain.compile(source) == first


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
        ToolchainError, match=rf"^\${variable}: names no program that can be run: 'no-such-compiler -x'"
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
    with pytest.raises(ToolchainError, match=r"^C compiler: wrote no library\. apt-get install gcc"):
        toolchain.compile("int x;")


@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-o"])
def test_flags_that_would_change_results_are_refused(flag: str) -> None:
    with pytest.raises(OptionsError, match=f"^option `extra_flags`: flag {flag} is not permitted$"):
        BuildOptions(extra_flags=(flag,))


def test_the_optimisation_level_is_checked() -> None:
    with pytest.raises(OptionsError) as caught:
        BuildOptions(opt_level=4)
    assert str(caught.value) == "option `opt_level`: value not permitted; got 4, expected 0 to 3"
