"""Objects are reused in other libraries: a unit is compiled again exactly if a file named by the unit changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.compiler_process import run_compiler
from byoc_core.native.toolchain import Toolchain, find_toolchain

EXPORT = '#include "byoc_ffi.h"\nBYOC_EXPORT int NAME(void) { return 1; }\n'
CHAIN = {
    "outer.h": '#include "inner.h"\n',
    "inner.h": "enum { INNER = 1 };\n",
    "reads.c": '#include "byoc_ffi.h"\n#include "outer.h"\nBYOC_EXPORT int reads(void) { return INNER; }\n',
    "other.c": EXPORT.replace("NAME", "other"),
}


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The units compiled so far."""
    units: list[str] = []

    def run(command: list[str], *_: object, **options: Path) -> object:
        units.extend(command[-1:] if "-c" in command else ())
        return run_compiler(command, 60, folder=options["folder"])

    monkeypatch.setattr("byoc_core.native.library_build.run_compiler", run)
    return units


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    return Toolchain(find_toolchain().command, build_cache=BuildCache(tmp_path / "libraries"))


def test_the_c_of_byoc_is_compiled_once_for_all_libraries(toolchain: Toolchain, compiled: list[str]) -> None:
    for name in ("one", "two"):
        text = EXPORT.replace("NAME", name)
        toolchain.compile(f'#define BYOC_NUM_UNITS 2\n#include "byoc_parallel.h"\n#if BYOC_UNIT == 0\n{text}#endif\n')
    units = sorted(compiled)
    assert units == sorted(["byoc_ffi.c", "byoc_parallel.c", "byoc_places.c", *["module_0.c"] * 2, *["module_1.c"] * 2])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"inner.h": "enum { INNER = 2 };\n"}, ["reads.c"]),
        ({"outer.h": '#include "inner.h"\n\n'}, ["reads.c"]),
        ({"unread.h": "\n"}, []),
        ({"other.c": CHAIN["other.c"] + "\n"}, ["other.c"]),
    ],
    ids=["nothing", "header of a header", "header", "unread header", "unit"],
)
def test_a_unit_is_compiled_again_if_a_file_named_by_it_changed(
    toolchain: Toolchain, compiled: list[str], changed: Mapping[str, str], expected: list[str]
) -> None:
    toolchain.compile(CHAIN)
    del compiled[:]
    toolchain.compile({**CHAIN, **changed})
    assert compiled == expected


@pytest.mark.parametrize(
    "include",
    [
        '#include "other.c"',
        '#define FILE "other.c"\n # include FILE',
        "#define S(x) #x\n#define T(x) S(x.c)\n# include T(other)",
    ],
)
def test_a_unit_including_a_unit_or_a_macro_follows_the_files(
    toolchain: Toolchain, compiled: list[str], include: str
) -> None:
    files = {"reads.c": f"{include}\n", "other.c": "static int unused;\n"}
    toolchain.compile(files)
    del compiled[:]
    toolchain.compile({**files, "other.c": "static int renamed;\n"})
    assert sorted(compiled) == ["other.c", "reads.c"]
