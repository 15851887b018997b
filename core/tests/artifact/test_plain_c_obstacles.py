"""Programs without a form in C: everything in the way is listed by name, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import byoc_core
import numpy as np
import pytest
from byoc_core.artifact import Executable
from byoc_core.dims import parse_dim, symbol
from byoc_core.errors import CodegenError, OptionsError, ToolchainError
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec
from byoc_core.vm import Call, CallKind, DynamicTensor, Ret, VMFunction
from byoc_core.vm.program import View

from core.tests.artifact.conftest import make_executable
from core.tests.artifact.exported_model import c_module, executable_of, extern, shift, tensor
from core.tests.artifact.test_library_program import SHIFT, loop, one_call
from core.tests.artifact.test_plain_c_sizes import two_steps

X, Y = tensor("x", "n"), tensor("y", "n")
PLAIN = Signature((X,), (X,))


def refusal(executable: Executable, folder: Path) -> str:
    """Return the list of obstacles, the same for all formats; check that nothing is written."""
    texts = set()
    for export in (
        lambda: executable.export_c(folder / "c"),
        lambda: executable.export_archive(folder / "libmodel.a"),
        lambda: executable.export_wheel(folder),
    ):
        with pytest.raises(CodegenError) as caught:
            export()
        texts.add((caught.value.where, caught.value.problem, caught.value.detail or ""))
    assert not list(folder.iterdir())
    ((where, problem, detail),) = texts
    return f"{where}: {problem}\n{detail}"


def one_function(module: CSourceModule, *args: int, **fields: object) -> Executable:
    """Return y = f(x)."""
    main = VMFunction("main", (X,), (Y,), (), (), (), (), (extern(0, args or (0,), (1,)), Ret((1,))))
    return executable_of((replace(main, **fields),), [module])  # type: ignore[arg-type]


def test_ops_on_the_host(tmp_path: Path) -> None:
    assert refusal(make_executable(), tmp_path) == (
        "function `main`: has no form in plain C because of 1 part\nfunction `main`: `region0` of runtime `graph` (add)"
    )


def test_sorting_on_the_host_is_named(tmp_path: Path) -> None:
    module = byoc_core.parse(
        """
@R.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 8), "float32")):
        a = R.sort(x)
        b = R.nn.relu(a)
        return b
"""
    )
    text = refusal(byoc_core.build(module, backends=[]), tmp_path)
    assert "of runtime `graph` (sort, nn.relu)" in text


def test_every_obstacle_of_every_function_is_listed(tmp_path: Path) -> None:
    unknown = (TensorSpec("y0", "float32", (symbol("k"),)),)
    found = (DynamicTensor("float32", (symbol("k"),), ("k",)),)
    functions = (
        one_call("undefined", extern(0, (0,), (1,))),
        one_call("packed", Call(CallKind.PACKED, 1, (0,), (2,)), results=unknown, dynamics=found),
        one_call("calls", Call(CallKind.FUNCTION, 0, (0,), (1,))),
        one_call("good", extern(1, (0,), (1,))),
    )
    executable = executable_of(functions, [shift("one", 1)], externs=("missing", "one"))
    assert refusal(executable, tmp_path) == (
        "function `undefined`, `packed`, `calls`: has no form in plain C because of 3 parts\n"
        "function `undefined`: `missing`, not defined by any module\n"
        "function `packed`: `one`, a function returning results\n"
        "function `calls`: `missing`, not defined by any module"
    )


def test_a_source_without_raw_functions(tmp_path: Path) -> None:
    constant = np.array([1], "float32")
    module = CSourceModule(
        SHIFT.replace("NAME", "old"), {"old": PLAIN}, constants={byoc_core.digest.digest_of(constant): constant}
    )
    assert refusal(one_function(module), tmp_path) == (
        "function `main`: has no form in plain C because of 1 part\n"
        "function `main`: `old`, from a source without functions over plain pointers (compile the model again)"
    )


@pytest.mark.parametrize("name", ["malloc", "calloc", "realloc", "aligned_alloc"])
def test_a_source_with_memory_on_the_heap(tmp_path: Path, name: str) -> None:
    raw = f"BYOC_EXPORT int32_t f_(const float *x, float *out, int64_t dim_n) {{ return {name}(1) == NULL; }}"
    assert refusal(one_function(c_module("f", raw, PLAIN)), tmp_path).endswith(
        "function `main`: `f`, from a source with memory on the heap"
    )


def test_names_beginning_like_the_heap_are_no_obstacle(tmp_path: Path) -> None:
    raw = "/* no_malloc(8) */\nBYOC_EXPORT int32_t f_(const float *x, float *out, int64_t dim_n) { return 0; }"
    assert one_function(c_module("f", raw, PLAIN)).export_c(tmp_path)


def test_a_failing_compiler_leaves_no_file(tmp_path: Path) -> None:
    executable = one_function(c_module("f", "#error wrong\nBYOC_EXPORT int32_t f_(void);", PLAIN))
    for export in (
        lambda: executable.export_archive(tmp_path / "a" / "lib.a"),
        lambda: executable.export_wheel(tmp_path / "w"),
    ):
        with pytest.raises(ToolchainError, match="wrong"):
            export()
    assert not list(tmp_path.iterdir())


def test_a_source_built_with_missing_files(tmp_path: Path) -> None:
    source = "BYOC_EXPORT int32_t f_(void);\n#ifndef BYOC_PLAIN_C\n#endif\n"
    module = CSourceModule(source, {"f": PLAIN}, options=BuildOptions(), not_held=("blas.o", "headers"))
    assert refusal(one_function(module), tmp_path).endswith(
        "function `main`: `f`, built with files missing in the artifact: blas.o, headers"
    )


def test_scratch_memory_of_unknown_size(tmp_path: Path) -> None:
    module = c_module("f", "BYOC_EXPORT int32_t f_(void);", PLAIN, traits=CallTraits(workspace_nbytes=symbol("n")))
    assert refusal(one_function(module), tmp_path).endswith(
        "function `main`: `f`, with scratch memory of a size unknown when the function begins"
    )


def test_sizes_not_determined_by_the_shapes_of_a_call(tmp_path: Path) -> None:
    square = TensorSpec("x", "float32", (parse_dim("k*k"),))
    module = c_module("f", "BYOC_EXPORT int32_t f_(void);", Signature((square,), (square,)))
    assert refusal(one_function(module), tmp_path).endswith(
        "function `main`: `f`, with sizes not determined by the shapes of the call: k"
    )


def test_strided_arguments_of_functions(tmp_path: Path) -> None:
    every_second = View(0, 0, "float32", (symbol("n"),), (2,))
    double = (TensorSpec("x", "float32", (2 * symbol("n"),)),)
    executable = one_function(shift("one", 1), 2, params=double, views=(every_second,))
    assert refusal(executable, tmp_path).endswith(
        "function `main`: a call without a valid link (`one` takes C-contiguous arrays only)"
    )


def test_functions_calling_themselves(tmp_path: Path) -> None:
    functions = (
        one_call("ping", Call(CallKind.FUNCTION, 1, (0,), (1,))),
        one_call("pong", Call(CallKind.FUNCTION, 0, (0,), (1,))),
    )
    assert refusal(executable_of(functions), tmp_path).splitlines()[1:] == [
        "function `ping`: `ping`, a function calling itself",
        "function `ping`: `pong`, a function calling itself",
        "function `pong`: `pong`, a function calling itself",
        "function `pong`: `ping`, a function calling itself",
    ]


def test_the_error_says_what_to_do() -> None:
    with pytest.raises(CodegenError) as caught:
        make_executable().export_c("nowhere")
    assert "`byoc explain` shows the reason for each op on the host." in str(caught.value)


def test_an_unknown_form_of_constants(tmp_path: Path) -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    with pytest.raises(OptionsError) as caught:
        executable.export_c(tmp_path / "c", constants="blob")
    assert str(caught.value) == "option `constants`: unknown form; got 'blob', expected auto, array, object, file"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    executable = executable_of((two_steps(),), [shift("one", 1)])
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        executable.export_c(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "in the way"


def test_files_of_an_earlier_export_are_replaced(tmp_path: Path) -> None:
    executable_of((loop(),), [shift("one", 1)], [np.array(True)]).export_c(tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    executable_of((two_steps(),), [shift("one", 1)]).export_c(tmp_path)
    executable_of((loop(),), [shift("one", 1)], [np.array(True)]).export_c(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
