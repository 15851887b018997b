"""Programs without a form in plain C: all parts are listed by name, and a failing export writes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim, symbol
from byoc_core.errors import ByocError, CallError, CodegenError, OptionsError
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import Signature, TensorSpec
from byoc_core.vm import Call, CallKind, DynamicTensor, Program

from core.tests.artifact.plain_c_caller import needs_gcc, program, scaler, scaling
from core.tests.artifact.test_library_program import extern, one_call, shift, tensors

pytestmark = needs_gcc

HINT = (
    "Compile the model with backends that generate C for all ops; `byoc explain` shows the reason for each op on the "
    "host."
)


def refusal(executable: Executable, folder: Path) -> str:
    """Return the text of the error of all exports; check that nothing is written."""
    exports: list[Callable[[], Any]] = [
        lambda: executable.export_c(folder / "c"),
        lambda: executable.export_archive(folder / "archive" / "lib.a"),
        lambda: executable.export_wheel(folder / "wheel"),
    ]
    texts = set()
    for export in exports:
        with pytest.raises(CodegenError) as caught:
            export()
        texts.add(str(caught.value))
    assert not list(folder.iterdir())
    (text,) = texts
    return text


def part_of(executable: Executable, folder: Path) -> str:
    """Return the only obstacle of ``main``."""
    head, line = refusal(executable, folder).splitlines()
    assert head == f"function `main`: has no form in plain C because of 1 part. {HINT}"
    return line.removeprefix("function `main`: ")


def test_all_parts_of_all_functions_are_listed(tmp_path: Path) -> None:
    unknown = (TensorSpec("y0", "float32", (symbol("k"),)),)
    found = (DynamicTensor("float32", (symbol("k"),), ("k",)),)
    functions = (
        one_call("undefined", extern(0, 0, 1)),
        one_call("packed", Call(CallKind.PACKED, 1, (0,), (2,)), results=unknown, dynamics=found),
        one_call("calls", Call(CallKind.FUNCTION, 0, (0,), (1,))),
        scaling("right", 1),
    )
    executable = Executable(Program(functions, ("missing", "one")), [scaler("one", 1)])
    assert refusal(executable, tmp_path).splitlines() == [
        "function `undefined`, `packed`, `calls`: has no form in plain C because of 3 parts. " + HINT,
        "function `undefined`: `missing`, not defined by any module",
        "function `packed`: `one`, a function returning results",
        "function `calls`: `missing`, not defined by any module",
    ]


def test_ops_on_the_host_are_an_obstacle(executable: Executable, tmp_path: Path) -> None:
    assert part_of(executable, tmp_path) == "`region0` of runtime `graph` (add)"


def test_a_function_calling_itself_is_an_obstacle(tmp_path: Path) -> None:
    function = one_call("main", Call(CallKind.FUNCTION, 0, (0,), (1,)))
    assert part_of(Executable(Program((function,))), tmp_path) == "`main`, a function calling itself"


def test_a_source_without_functions_over_pointers_is_an_obstacle(tmp_path: Path) -> None:
    executable = Executable(Program((scaling(),), ("one",)), [shift("one", 1)])
    text = "`one`, from a source without functions over plain pointers (compile the model again)"
    assert part_of(executable, tmp_path) == text


@pytest.mark.parametrize("name", ["malloc", "calloc", "realloc", "aligned_alloc"])
def test_memory_on_the_heap_is_an_obstacle(name: str, tmp_path: Path) -> None:
    loop = "  for (int64_t i = 0;"
    module = scaler("one", 1, loop, f"  void *block = {name}(8);\n  (void)block;\n{loop}")
    assert part_of(program((scaling(),), module), tmp_path) == "`one`, from a source with memory on the heap"


def test_names_beginning_like_the_heap_are_no_obstacle(tmp_path: Path) -> None:
    loop = "  for (int64_t i = 0;"
    module = scaler("one", 1, loop, f"  /* no_malloc(8) */\n{loop}")
    assert program((scaling(),), module).export_c(tmp_path)


def test_files_missing_in_the_artifact_are_an_obstacle(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    path = tmp_path / "objects" / "other.o"
    path.write_bytes(b"")
    module = scaler("one", 1)
    options = replace(module.options, extra_objects=(str(path),))
    built = CSourceModule(module.get_source("c"), module.signatures, constants=module.constants, options=options)
    executable = program((scaling(),), built)
    executable.save(tmp_path / "model.byoc")
    loaded = byoc_core.load(tmp_path / "model.byoc", allow_native=True)
    (folder := tmp_path / "out").mkdir()
    assert part_of(loaded, folder) == "`one`, built with files missing in the artifact: other.o"


def test_sizes_not_determined_by_the_call_are_an_obstacle(tmp_path: Path) -> None:
    wide = TensorSpec("x", "float32", (parse_dim("n*m"),))
    module = scaler("one", 1)
    built = CSourceModule(module.get_source("c"), {"one": Signature((wide,), (wide,))}, constants=module.constants)
    text = "`one`, with sizes not determined by the shapes of the call: m, n"
    assert part_of(program((scaling(),), built), tmp_path) == text


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        (
            {"constants": "text"},
            OptionsError,
            "option `constants`: unknown form; got 'text', expected auto, array, object",
        ),
        ({"max_sizes": {"k": 1}}, OptionsError, "option `max_sizes`: unknown size `k`; expected n"),
        (
            {"max_sizes": {"n": 0}},
            OptionsError,
            "option `max_sizes`: impossible maximum of `n`; got 0, expected 1 or more",
        ),
        (
            {"test_inputs": {"z": np.zeros(3, "float32")}},
            CallError,
            "option `test_inputs`: names an unknown input `z`; expected x0",
        ),
    ],
)
def test_impossible_options_are_refused(
    options: dict[str, Any], error: type[ByocError], text: str, tmp_path: Path
) -> None:
    with pytest.raises(error) as caught:
        program((scaling(),), scaler("one", 1)).export_c(tmp_path / "c", **options)
    assert str(caught.value) == text
    assert not list(tmp_path.iterdir())


def test_all_sizes_need_a_maximum(tmp_path: Path) -> None:
    functions = (scaling(), replace(scaling("other"), params=tensors((symbol("k"),)), results=tensors((symbol("k"),))))
    with pytest.raises(OptionsError) as caught:
        program(functions, scaler("one", 1)).export_c(tmp_path / "c", max_sizes={"n": 3})
    assert str(caught.value) == "option `max_sizes`: no maximum for k. Give all, or none."
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("inputs", [np.zeros((3, 2), "float32"), np.zeros(3, "float64")])
def test_inputs_of_the_test_program_must_fit(inputs: Any, tmp_path: Path) -> None:
    with pytest.raises(ByocError, match=r"argument `x0`|input 0 `x0`"):
        program((scaling(),), scaler("one", 1)).export_c(tmp_path / "c", test_inputs={"x0": inputs})
    assert not list(tmp_path.iterdir())


def test_a_model_failing_on_given_inputs_is_not_exported(tmp_path: Path) -> None:
    executable = program((scaling(),), scaler("one", 1))
    with pytest.raises(ByocError, match="fails on 13 elements"):
        executable.export_c(tmp_path / "c", test_inputs={"x0": np.zeros(13, "float32")})
    assert not list(tmp_path.iterdir())


def test_a_wheel_needs_main_and_the_machine_itself(tmp_path: Path) -> None:
    with pytest.raises(CodegenError) as caught:
        program((scaling("other"),), scaler("one", 1)).export_wheel(tmp_path)
    assert str(caught.value) == "executable: has no function `main`; got other"
    module = scaler("one", 1)
    foreign = CSourceModule(
        module.get_source("c"),
        module.signatures,
        constants=module.constants,
        options=BuildOptions(target="aarch64-linux-gnu"),
    )
    with pytest.raises(CodegenError) as caught:
        program((scaling(),), foreign).export_wheel(tmp_path)
    assert str(caught.value) == ("executable: is compiled for another machine; a wheel is made on the machine itself")
    with pytest.raises(OptionsError) as wrong:
        program((scaling(),), module).export_wheel(tmp_path, version="one")
    assert str(wrong.value) == "option `version`: is not a version of a package; got 'one'"
    assert not list(tmp_path.iterdir())


def test_a_failing_compiler_leaves_no_file(tmp_path: Path) -> None:
    executable = program((scaling(),), scaler("one", 1, "out[i] =", "#error wrong\nout[i] ="))
    exports: list[Callable[[], Any]] = [
        lambda: executable.export_archive(tmp_path / "a" / "lib.a"),
        lambda: executable.export_wheel(tmp_path / "w"),
    ]
    for export in exports:
        with pytest.raises(ByocError, match="error"):
            export()
    assert not list(tmp_path.iterdir())
