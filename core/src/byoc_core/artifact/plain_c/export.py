"""The export: all files of a model as plain C, written to a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.layout import WorkspaceLayout, lay_out_workspaces
from byoc_core.artifact.plain_c.model_text import ModelText
from byoc_core.artifact.plain_c.names import FunctionNames
from byoc_core.artifact.plain_c.obstacles import check_plain
from byoc_core.artifact.plain_c.project import project_files
from byoc_core.artifact.plain_c.test_vector import make_test_vector
from byoc_core.artifact.program_c import NativeProgram
from byoc_core.errors import OptionsError
from byoc_core.file_replacement import replace_file
from byoc_core.native.build_options import merge_linkage
from byoc_core.native.c_text import c_identifier
from byoc_core.native.plain_c import plain_c_headers
from byoc_core.native.static_build import build_archive
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray
from byoc_core.vm.program import Program
from byoc_core.vm.verify import verify

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["PlainModel", "export_archive", "export_c", "plain_model"]


@dataclass(frozen=True, slots=True)
class PlainModel:
    """A model as C.

    Attributes:
        name: the prefix of all C names.
        files: the sources, headers and constants by file name, without test program and build files.
        modules: the sources of generated C.
        names: the C names of all functions, by name.
        layouts: the workspaces of all functions, by name.
    """

    name: str
    files: Mapping[str, bytes]
    modules: Sequence[CSourceModule]
    names: Mapping[str, FunctionNames]
    layouts: Mapping[str, WorkspaceLayout]

    @property
    def options(self) -> BuildOptions:
        """The options of compiling and linking all sources."""
        return merge_linkage([module.options for module in self.modules]) if self.modules else BuildOptions()


def plain_model(
    executable: Executable, name: str, max_sizes: Mapping[str, int] | None = None, constants: str = "auto"
) -> PlainModel:
    """Return an executable as C; see :meth:`Executable.export_c`."""
    verify(executable.program)
    _check_name(name)
    _check_max_sizes(executable.program, max_sizes)
    native = NativeProgram(executable.program, executable.modules)
    check_plain(native)
    modules = [module for module in executable.modules if isinstance(module, CSourceModule)]
    constant_files = ConstantFiles(name, _constants(executable, modules), constants)
    names = {function.name: FunctionNames(name, function) for function in executable.program.functions}
    layouts = lay_out_workspaces(executable.program, max_sizes)
    text = ModelText(name, native, names, layouts, constant_files, max_sizes, modules)
    sources = {f"{name}_module{number}.c": module for number, module in enumerate(modules)}
    files: dict[str, bytes] = {
        f"{name}.h": text.header().encode(),
        f"{name}.c": text.source().encode(),
        f"{name}_symbols.h": _symbols_header(name, modules).encode(),
        **{file: _module_source(name, n, m).encode() for n, (file, m) in enumerate(sources.items())},
        **constant_files.files(),
    }
    texts = {file: module.get_source("c") for file, module in sources.items()} or {"empty.c": ""}
    files |= {file: header.encode() for file, header in plain_c_headers(texts).items()}
    return PlainModel(name, files, modules, names, layouts)


def export_c(
    executable: Executable,
    folder: str | os.PathLike[str],
    *,
    name: str = "model",
    max_sizes: Mapping[str, int] | None = None,
    constants: str = "auto",
    test_inputs: Mapping[str, NDArray] | None = None,
) -> tuple[Path, ...]:
    """Write an executable as C sources; see :meth:`Executable.export_c`."""
    model = plain_model(executable, name, max_sizes, constants)
    vector = make_test_vector(executable, max_sizes, test_inputs)
    sources = [file for file in model.files if file.endswith(".c")]
    files = {**model.files, **project_files(name, sources, model.modules, model.names, model.layouts, vector)}
    return _write(Path(folder), files)


def export_archive(
    executable: Executable,
    path: str | os.PathLike[str],
    *,
    name: str = "model",
    max_sizes: Mapping[str, int] | None = None,
) -> tuple[Path, ...]:
    """Write an executable as a static library and a header; see :meth:`Executable.export_archive`."""
    model = plain_model(executable, name, max_sizes, "object")
    data = build_archive(model.files, model.options)
    file = Path(path)
    header = file.with_name(f"{name}.h")
    file.parent.mkdir(parents=True, exist_ok=True)
    for target, content in ((file, data), (header, model.files[f"{name}.h"])):
        with replace_file(target) as stream:
            stream.write(content)
    return (file, header)


def _check_name(name: str) -> None:
    if not name.isascii() or c_identifier(name) != name or name.startswith(("_", "byoc")):
        raise OptionsError(
            "option `name`", "is not usable as prefix of C names", got=repr(name), expected="such as 'model'"
        )


def _check_max_sizes(program: Program, max_sizes: Mapping[str, int] | None) -> None:
    symbols = sorted({name for function in program.functions for name in function.input_symbols})
    for symbol, size in (max_sizes or {}).items():
        if symbol not in symbols:
            known = ", ".join(symbols) or "no symbolic size"
            raise OptionsError("option `max_sizes`", f"unknown size `{symbol}`", expected=known)
        if size < 1:
            raise OptionsError(
                "option `max_sizes`", f"impossible maximum of `{symbol}`", got=size, expected="1 or more"
            )
    missing = [name for name in symbols if name not in (max_sizes or {})]
    if max_sizes and missing:
        raise OptionsError("option `max_sizes`", f"no maximum for {', '.join(missing)}", hint="Give all, or none.")


def _constants(executable: Executable, modules: Sequence[CSourceModule]) -> dict[str, NDArray]:
    """Return the constants of the program and of all modules by digest, each once."""
    found: dict[str, NDArray] = {
        reference.digest: executable.constants[reference.digest] for reference in executable.program.constants
    }
    for module in modules:
        found |= module.constants
    return found


def _symbols_header(name: str, modules: Sequence[CSourceModule]) -> str:
    """Return definitions of prefixed names for all generated functions, so that models may be linked together."""
    lines = ["/* Names of generated functions, with the model's prefix. */"]
    for module in modules:
        for symbol in module.function_names:
            lines += [f"#define {symbol}_{kind} {name}_{symbol}_{kind}" for kind in ("", "sizes_")]
    return "\n".join(lines) + "\n"


def _module_source(name: str, number: int, module: CSourceModule) -> str:
    table = f"#define byoc_constants {name}_constants_{number}\n" if module.constants else ""
    # The first line of a long text asks for several translation units; here the text is one.
    source = re.sub(r"\A#define BYOC_NUM_UNITS \d+\n", "", module.get_source("c"))
    prototypes = "".join(f"{line}\n" for line in _prototypes(source))
    return (
        f'#define BYOC_PLAIN_C 1\n#include "{name}_symbols.h"\n{table}#include "byoc_ffi.h"\n'
        f'#include "byoc_scalar.h"\n{prototypes}{source}'
    )


def _prototypes(source: str) -> list[str]:
    """Return declarations of the exported functions over plain pointers: their text, without the body."""
    outer = re.sub(r"(?ms)^#ifndef BYOC_PLAIN_C$.*?^#endif$", "", source)
    return [f"{head};" for head in re.findall(r"(?m)^(BYOC_EXPORT int32_t \w+\([^{]*\)) \{$", outer)]


def _write(folder: Path, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        with replace_file(folder / file) as stream:
            stream.write(data)
    return tuple(folder / file for file in files)
