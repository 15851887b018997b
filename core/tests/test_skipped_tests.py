"""Skips are counted by kind; a skip without a kind, or despite a present requirement, fails the run."""

from __future__ import annotations

import ast
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from byoc_core.native.cpu import machine_features
from byoc_core.native.toolchain import Toolchain
from byoc_core.runtime.extension import extension

import machine_parts
import skipped_tests
from skipped_tests import Rule, Skip, find_faults, read_counts, show_counts, write_counts

_REPOSITORY = Path(skipped_tests.__file__).parent
_RULES = (
    Rule("library", r"could not import '(\w+)'", lambda match: match[1] == "json"),
    Rule("hardware", "no tiles", lambda _: False),
)


def test_faults() -> None:
    assert find_faults(["could not import 'numpy9'", "no tiles here"], _RULES) == []
    assert find_faults(["could not import 'json'", "too lazy", "too lazy"], _RULES) == [
        "skipped although nothing is missing (library): could not import 'json'",
        "skipped for a reason without a rule in skipped_tests.py: too lazy",
    ]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("oneDNN has no instructions for float16 here", "hardware"),
        ("this machine has no tiles", "hardware"),
        ("this machine does not run avx512_bf16, avx512_vnni", "hardware"),
        ("there is one processor", "hardware"),
        ("could not import 'tvm_ffi'", "library"),
        ("could not import 'tvm_ffi': No module named 'tvm_ffi'", "library"),
        ("the system has no libgomp", "library"),
        ("there is no C compiler on this machine", "compiler"),
        ("clang is not installed", "compiler"),
        ("a system without fork", "system"),
        ("reads /proc", "system"),
        ("the source tree is under test; nox sets BYOC_TEST_INSTALLED=1 and tests the installed wheel", "design"),
    ],
)
def test_kinds(reason: str, kind: str, tmp_path: Path) -> None:
    write_counts(tmp_path, "s", [reason])
    assert read_counts(tmp_path) == [Skip("s", kind, reason, 1)]
    assert kind in skipped_tests.KINDS


_SKIPS = {"skip", "skipif", "Exception"}
_EXAMPLES = {-1: "bfloat16", ord("r"): "'bfloat16'"}
"""Examples by the conversion of a value in a text."""


def _written_reasons() -> set[str]:
    """Return the literal reasons in tests; a placeholder for a value becomes a name of bfloat16."""
    tests = [path for folder in ("core", "plugins", "conformance", "rt", "published") for path in _tests(folder)]
    calls = (node for path in tests for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    found = set()
    for call in calls:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _SKIPS:
            texts = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "reason")]
            found |= {_written(text) for text in texts if isinstance(text, ast.Constant | ast.JoinedStr)}
    return {reason for reason in found if reason}


def _tests(folder: str) -> list[Path]:
    own = {Path(__file__).name, "test_pytest_plugin.py"}  # skips with reasons without a rule
    return [
        path
        for path in (_REPOSITORY / folder).rglob("*.py")
        if "tests" in str(path.relative_to(_REPOSITORY)) and path.name not in own
    ]


def _written(text: ast.expr) -> str:
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else _EXAMPLES[getattr(part, "conversion", -1)]
        for part in parts
    )


def test_each_reason_in_the_tests_has_a_kind() -> None:
    reasons = _written_reasons()
    assert len(reasons) > 30
    assert [fault for fault in find_faults(reasons) if "without a rule" in fault] == []


def test_each_rule_asks_the_machine() -> None:
    """Of the kit's answers, and of wheels not built, no machine can have the missing part."""
    unasked = [rule.pattern for rule in skipped_tests.RULES if rule.is_present is machine_parts.is_by_design]
    assert unasked == [r"^L\d-\S+: declined: ", " has no wheel for Python "]


_PRESENT = {
    "a system without fork": hasattr(os, "fork"),
    "the system has no fork": hasattr(os, "fork"),
    "forks": hasattr(os, "fork"),
    "a system without affinities": hasattr(os, "sched_getaffinity"),
    "there are no named pipes here": hasattr(os, "mkfifo"),
    "reads /proc": sys.platform == "linux",
    "permissions and links are those of POSIX": os.name == "posix",
    "this user may read everything": hasattr(os, "geteuid") and os.geteuid() != 0,
    "the system does not tell how much memory is resident": sys.platform == "linux",
    "the sample holds native code for x86-64 Linux": (sys.platform, platform.machine()) == ("linux", "x86_64"),
    "this machine does not run no_such_set": False,
    "this machine does not run sse2": "sse2" in (machine_features() or ()),
    "library: the native code needs CPU features missing on this machine: sse2": "sse2" in (machine_features() or ()),
    "library: the native code needs CPU features missing on this machine: sse2, no_such_set": False,
    "sh is not installed": shutil.which("sh") is not None,
    "no_such_compiler is not installed": False,
    "there is no C compiler on this machine": Toolchain.status().ok,
    "the extension is not built": extension() is not None,
    "no backend no_such_backend here": False,
    "no backend host here": True,
    "L1-naming: declined: too slow": False,
}


@pytest.mark.parametrize("reason", _PRESENT)
def test_what_is_there_is_no_reason_to_skip(reason: str) -> None:
    faults = [fault for fault in find_faults([reason]) if "although nothing is missing" in fault]
    assert len(faults) == _PRESENT[reason]


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("the source tree is under test; nox sets it", {"BYOC_TEST_INSTALLED": "1"}),
        ("nox tests the installed wheel, and says so", {"BYOC_TEST_INSTALLED": "1"}),
        ("`nox -s versions` says where the wheels are", {"BYOC_WHEELS": "dist"}),
        ("`nox -s thorough` makes these calls", {"BYOC_EXAMPLES": "thorough"}),
        ("BYOC_NATIVE=0 switches the C extension off", {"BYOC_NATIVE": ""}),
        ("sanitizers put fences between the variables of a frame", {"BYOC_CC": ""}),
    ],
)
def test_what_the_environment_asks_for_is_no_reason_to_skip(
    reason: str, changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    excuses = {"BYOC_NATIVE": "0", "BYOC_CC": f"{sys.executable} -fsanitize=address"}
    for name in changes:
        monkeypatch.delenv(name, raising=False)
        if name in excuses:
            monkeypatch.setenv(name, excuses[name])
    assert find_faults([reason]) == []
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    assert find_faults([reason]) == [f"skipped although nothing is missing (design): {reason}"]


@pytest.mark.parametrize(("setting", "excused"), [("AVX2", True), (None, False)])
def test_onednn_may_be_told_to_do_with_less(
    setting: str | None, excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_parts, "_flags", lambda: frozenset({"avx_vnni"}))
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if setting is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", setting)
    assert (find_faults(["oneDNN has no instructions for bytes here"]) == []) == excused
    assert find_faults(["oneDNN has no instructions for float16 here"]) == []


def test_what_is_installed_is_no_reason_to_skip() -> None:
    assert find_faults(["could not import 'pytest'"]) == [
        "skipped although nothing is missing (library): could not import 'pytest'"
    ]
    assert find_faults(["could not import 'no_such_package'"]) == []


def test_counts_of_several_runs_are_one_table(tmp_path: Path) -> None:
    write_counts(tmp_path, "tests-core", ["could not import 'a'"] * 2 + ["nox tests the installed wheel"])
    write_counts(tmp_path, "docs", ["could not import 'b'"])
    assert show_counts(read_counts(tmp_path)).splitlines() == [
        "skipped tests: 1 for design, 3 for library",
        "  docs                     library         1  could not import 'b'",
        "  tests-core               library         2  could not import 'a'",
    ]
    assert show_counts([]) == "skipped tests: none"


@pytest.mark.parametrize(
    ("reason", "status", "text"),
    [
        ("could not import 'no_such_package'", 0, "1 skipped"),
        (
            "could not import 'pytest'",
            1,
            "skipped although nothing is missing (library): could not import 'pytest'",
        ),
        ("too lazy", 1, "skipped for a reason without a rule in skipped_tests.py: too lazy"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_fails_where_a_skip_is_at_fault(
    reason: str, status: int, text: str, workers: int, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_bytes((_REPOSITORY / "conftest.py").read_bytes())
    test = f"import pytest\n\ndef test_one():\n    pytest.skip({reason!r})\n\ndef test_two():\n    pass\n"
    (tmp_path / "test_it.py").write_text(test, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    counts = tmp_path / "counts"
    environment = os.environ | {skipped_tests.FOLDER: str(counts), "PYTHONPATH": str(_REPOSITORY)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    options = ["-n", str(workers)] if workers else []
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert text in done.stdout
    assert [(skip.reason, skip.count) for skip in read_counts(counts)] == [(reason, 1)]
