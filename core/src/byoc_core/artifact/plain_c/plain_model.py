"""A model as C: all sources, headers and constants, without test program and build files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.artifact.native_program import NativeProgram
from byoc_core.artifact.plain_c.constants import ConstantFiles
from byoc_core.artifact.plain_c.layout import DEFAULT_POOL, WorkspaceLayout, lay_out_workspaces
from byoc_core.artifact.plain_c.model_text import ModelText
from byoc_core.artifact.plain_c.module_text import module_text
from byoc_core.artifact.plain_c.names import FunctionNames, Identifiers, is_free_name, name_functions
from byoc_core.artifact.plain_c.obstacles import check_plain
from byoc_core.artifact.plain_c.raw_functions import ENDS, RawFunctions
from byoc_core.dims import Dim
from byoc_core.errors import OptionsError
from byoc_core.native.build_options import merge_linkage
from byoc_core.native.c_text import c_identifier
from byoc_core.native.plain_c import is_portable, plain_c_headers
from byoc_core.native.toolchain import BuildOptions
from byoc_core.runtime.csource import CSourceModule
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.pools import Pool
from byoc_core.vm.pool_placement import pools_of_intermediates
from byoc_core.vm.program import Program
from byoc_core.vm.verify import verify

if TYPE_CHECKING:
    from byoc_core.artifact.executable import Executable

__all__ = ["PlainModel", "plain_model"]


@dataclass(frozen=True, slots=True)
class PlainModel:
    """A model as C.

    Attributes:
        name: the prefix of all C names.
        files: the sources, headers and constants by file name, without test program and build files.
        modules: the sources of generated C.
        names: the C names of all functions, by name.
        layouts: the workspaces of all functions, by name.
        pools: the memories of a run.
        constants: the constants.
        state_buffers: the buffers of states of all functions, by name: member, member of the capacity, dtype, and
            elements after a run.
    """

    name: str
    files: Mapping[str, bytes]
    modules: Sequence[CSourceModule]
    names: Mapping[str, FunctionNames]
    layouts: Mapping[str, WorkspaceLayout]
    pools: Sequence[Pool]
    constants: ConstantFiles
    state_buffers: Mapping[str, Sequence[tuple[str, str, str, Dim]]]

    @property
    def is_portable(self) -> bool:
        """Whether generated C is for any compiler, so arrays of a test vector are C text."""
        return _are_portable(self.modules)

    @property
    def options(self) -> BuildOptions:
        """The options of compiling and linking all sources."""
        return merge_linkage([module.options for module in self.modules]) if self.modules else BuildOptions()


def plain_model(
    executable: Executable,
    name: str,
    max_sizes: Mapping[str, int] | None = None,
    constants: str = "auto",
    pools: Sequence[Pool] = (),
    *,
    places_arguments: bool = False,
) -> PlainModel:
    """Return an executable as C; see :meth:`Executable.export_c`."""
    verify(executable.program)
    _check_name(name)
    max_sizes = _check_max_sizes(executable.program, max_sizes)
    native = NativeProgram(executable.program, executable.modules, keeps_states=True)
    check_plain(native)
    if places_arguments and any(function.states for function in executable.program.functions):
        raise OptionsError(
            "option `places_arguments`", "places no states", hint="States lie in a structure of the caller."
        )
    modules = [module for module in executable.modules if isinstance(module, CSourceModule)]
    if constants == "auto" and _are_portable(modules):
        constants = "array"
    constant_files = ConstantFiles(name, _constants(executable, modules), constants)
    fixed = _fixed_identifiers(name, constant_files, len(modules))
    writable = _writable_pools(name, pools, constant_files.nbytes, fixed)
    pool_names = [pool.name for pool in writable]
    identifiers = Identifiers([*fixed, *(f"{name.upper()}_{pool.upper()}_ALIGNMENT" for pool in pool_names)])
    names = name_functions(name, executable.program.functions, identifiers, pool_names)
    renamed = [_rename_raw_functions(name, module, identifiers) for module in modules]
    expressions = constant_files.expressions()
    tables = {
        symbol: [expressions[digest] for digest in module.constants]
        for module in modules
        for symbol in module.function_names
        if constant_files.is_file and module.constants
    }
    raw = RawFunctions({key: text for item in renamed for key, text in item.items()}, tables)
    layouts = lay_out_workspaces(executable.program, max_sizes, writable, places_arguments=places_arguments)
    text = ModelText(name, native, names, raw, layouts, constant_files, max_sizes, modules, writable)
    sources = {
        f"{name}_module{n}.c": module_text(
            module, renamed[n], f"{name}_constants_{n}", takes_constants=constant_files.is_file
        )
        for n, module in enumerate(modules)
    }
    files: dict[str, bytes] = {
        f"{name}.h": text.header().encode(),
        f"{name}.c": text.source().encode(),
        **{file: source.encode() for file, source in sources.items()},
        **constant_files.files(),
    }
    texts = {file: module.get_source("c") for file, module in zip(sources, modules, strict=True)} or {"empty.c": ""}
    files |= {file: header.encode() for file, header in plain_c_headers(texts).items()}
    return PlainModel(name, files, modules, names, layouts, writable, constant_files, text.state_buffers())


_HEADERS = (
    *("assert", "complex", "ctype", "errno", "features", "fenv", "float", "inttypes", "iso646", "limits", "locale"),
    *("malloc", "math", "memory", "setjmp", "signal", "stdalign", "stdarg", "stdatomic", "stdbool", "stddef", "stdint"),
    *("stdio", "stdlib", "stdnoreturn", "string", "strings", "tgmath", "threads", "time", "uchar", "wchar", "wctype"),
)
"""Headers of C: a header of this name in a folder of includes hides the header of C."""
_TARGETS = ("all", "clean", "help", "install", "package", "package_source", "test")
"""Names of targets reserved by CMake."""


_VARIABLES = re.compile(r"[a-z]\d+|mem(move|cpy|set|cmp)|table_\d+|constants")
"""Variables and functions inside the C of functions."""


def _are_portable(modules: Sequence[CSourceModule]) -> bool:
    return any(is_portable(module.get_source("c")) for module in modules)


def _check_name(name: str) -> None:
    if (
        not name.isascii()
        or c_identifier(name) != name
        or name.startswith(("_", "byoc", "dim_"))
        or name in (*_HEADERS, *_TARGETS, "dim")
    ):
        raise OptionsError(
            "option `name`", "is not usable as prefix of C names", got=repr(name), expected="such as 'model'"
        )


def _check_max_sizes(program: Program, max_sizes: Mapping[str, int] | None) -> dict[str, int] | None:
    """Return the largest sizes; ``None`` for none."""
    symbols = sorted({name for function in program.functions for name in function.input_symbols})
    for symbol, size in (max_sizes or {}).items():
        if symbol not in symbols:
            names_text = ", ".join(symbols) or "no symbolic size"
            raise OptionsError("option `max_sizes`", f"unknown size `{symbol}`", expected=names_text)
        if isinstance(size, float) or size < 1:
            raise OptionsError(
                "option `max_sizes`", f"impossible maximum of `{symbol}`", got=size, expected="1 or more"
            )
    missing = [name for name in symbols if name not in (max_sizes or {})]
    if max_sizes and missing:
        raise OptionsError("option `max_sizes`", f"no maximum for {', '.join(missing)}", hint="Give all, or none.")
    return {symbol: int(size) for symbol, size in max_sizes.items()} if max_sizes else None


def _writable_pools(
    name: str, pools: Sequence[Pool], constants_nbytes: int, fixed: Collection[str]
) -> tuple[Pool, ...]:
    """Return the pools for intermediates; check the names, and the size of constants against the read-only pools.

    Args:
        name: the model's name.
        pools: all pools.
        constants_nbytes: the bytes of all constants.
        fixed: the identifiers of the model itself.

    Raises:
        OptionsError: a name is no C identifier, or no pool is writable.
        MemoryLimitError: the constants exceed the read-only pools.
    """
    for pool in pools:
        if not _is_usable_pool(pool.name, name, fixed):
            raise OptionsError(f"pool `{pool.name}`", "has a name unusable in C", expected="such as 'sram'")
    capitals: dict[str, str] = {}
    for pool in pools:
        other = capitals.setdefault(pool.name.upper(), pool.name)
        if other != pool.name:
            raise OptionsError(f"pool `{pool.name}`", f"differs from the pool `{other}` in capital letters alone")
    return pools_of_intermediates(pools, constants_nbytes) or (DEFAULT_POOL,)


def _is_usable_pool(pool: str, name: str, fixed: Collection[str]) -> bool:
    """Return whether a name is an identifier without another meaning in the C of a model."""
    is_identifier = pool.isascii() and c_identifier(pool) == pool and not pool.startswith("_")
    is_free = is_free_name(pool) and not pool.startswith((f"{name}_", f"{name.upper()}_"))
    macros = {f"{name}_{pool}_{end}".upper() for end in ("SIZE", "ALIGNMENT")}
    is_free = is_free and macros.isdisjoint(fixed) and not _VARIABLES.fullmatch(pool)
    return pool == DEFAULT_POOL.name or (is_identifier and is_free)


def _constants(executable: Executable, modules: Sequence[CSourceModule]) -> dict[str, NDArray]:
    """Return the constants of the program and of all modules by digest, each once."""
    found: dict[str, NDArray] = {
        reference.digest: executable.constants[reference.digest] for reference in executable.program.constants
    }
    for module in modules:
        found |= module.constants
    return found


def _fixed_identifiers(name: str, constants: ConstantFiles, num_modules: int) -> list[str]:
    """Return the identifiers of the model itself."""
    lower = ["tensor", "pools", "constant_data", *(f"constants_{end}" for end in ("head", "size", "digest"))]
    capitals = ["OK", "FAILED", "BAD_SIZE", "BAD_ARGUMENT", "BAD_CONSTANTS", "STATE_FULL", "H_"]
    capitals += [f"CONSTANTS_{end}" for end in ("SECTION", "ATTRIBUTE", "ALIGNMENT", "SIZE", "PATH")]
    return [
        *(f"{name}_{text}" for text in lower),
        f"{name}_check_constants",
        *(f"{name.upper()}_{text}" for text in capitals),
        *(f"{name}_constants_{number}" for number in range(num_modules)),
        *constants.names,
    ]


def _rename_raw_functions(name: str, module: CSourceModule, identifiers: Identifiers) -> dict[tuple[str, str], str]:
    """Return the names of generated functions, by symbol and end, different in each model of a program."""
    return {
        (symbol, end): identifiers.allocate(f"{name}_{symbol}{end}") for symbol in module.function_names for end in ENDS
    }
