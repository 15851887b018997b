"""C compilers: the system's compiler is found, queried for properties, and used to build libraries.

The search order is: ``$BYOC_CC``, ``$CC`` (a command line each), ``cc``, ``gcc``, ``clang``, and the ``ziglang``
package from PyPI (``python -m ziglang cc``). A set variable decides: no fallback is tried. Code for another machine is
built by ``zig cc``, because it brings the headers and libraries of all targets.

``-ffast-math`` is refused: linking with it switches the whole process to flush-to-zero arithmetic.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from byoc_core.errors import ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.build_options import BuildOptions, CompiledLibrary
from byoc_core.native.compile_units import (
    has_parallel_loops,
    include_directory,
    support_files,
    translation_units,
)
from byoc_core.native.compiler_process import REMEDY, run_compiler, write_files
from byoc_core.native.cpu import Target, features_of_macros, target_of_macros
from byoc_core.native.linkage import Linkage, find_linkage, header_digests

__all__ = [
    "BuildOptions",
    "CompiledLibrary",
    "Toolchain",
    "ToolchainStatus",
    "find_toolchain",
    "has_parallel_loops",
    "include_directory",
]

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ToolchainStatus:
    """Whether C can be compiled here; if not, the reason and the remedy."""

    ok: bool
    reason: str = ""
    remedy: str = ""


def _find_command() -> tuple[str, ...]:
    for variable in ("BYOC_CC", "CC"):
        command_line = os.environ.get(variable)
        if command_line:
            try:
                command = shlex.split(command_line)
            except ValueError:
                command = []
            found = shutil.which(command[0]) if command else None
            if found is None:
                raise ToolchainError(
                    f"${variable}", f"does not name an executable program: {command_line!r}", hint=REMEDY
                )
            return (found, *command[1:])
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return (found,)
    zig = _find_zig()
    if zig is not None:
        return zig
    raise ToolchainError("C compiler", "none was found (cc, gcc, clang, ziglang)", hint=REMEDY)


def _find_zig() -> tuple[str, ...] | None:
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    found = shutil.which("zig")
    return None if found is None else (found, "cc")


def find_toolchain(target: str = "") -> Toolchain:
    """Return the C compiler of this machine; cheap after the first time, because the compiler's answers are kept.

    Args:
        target: the target triple, which selects ``zig cc``; empty for this machine.

    Raises:
        ToolchainError: no compiler was found; the text has the remedy.
    """
    if not target:
        return _toolchain_for(_find_command())
    try:
        default = _toolchain_for(_find_command())
    except ToolchainError:
        default = None
    if default is not None and default.is_zig:
        return default
    found = _find_zig()
    if found is None:
        raise ToolchainError(
            "C compiler", f"none was found for target {target}", expected="zig", hint="pip install ziglang"
        )
    return _toolchain_for(found)


@cache
def _toolchain_for(command: tuple[str, ...]) -> Toolchain:
    return Toolchain(command)


class Toolchain:
    """A C compiler with the command line of ``gcc``.

    Args:
        command: program and leading arguments.
        build_cache: cache of products; ``None`` for the user's cache.
        timeout_s: timeout of a run in seconds.
    """

    def __init__(
        self, command: Sequence[str], *, build_cache: BuildCache | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.command = tuple(command)
        self.timeout_s = timeout_s
        self._build_cache = build_cache
        self._version: str | None = None
        self._macros: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._targets: dict[tuple[str, str], Target] = {}

    @staticmethod
    def status() -> ToolchainStatus:
        """Return whether C can be compiled here; runs the compiler once (``--version``)."""
        try:
            toolchain = find_toolchain()
            toolchain.version  # noqa: B018 - reading the property runs the compiler
        except ToolchainError as error:
            got = f" ({error.got})" if error.got is not None else ""
            reason = f"{error.where}: {error.problem}{got}"
            return ToolchainStatus(ok=False, reason=reason, remedy=error.hint or REMEDY)
        return ToolchainStatus(ok=True)

    @property
    def version(self) -> str:
        """The compiler's output for ``--version``.

        Raises:
            ToolchainError: the compiler does not run.
        """
        if self._version is None:
            self._version = self._ask_version()
        return self._version

    def _ask_version(self) -> str:
        try:
            finished = run_compiler([*self.command, "--version"], self.timeout_s)
        except ToolchainError as error:
            problem = f"`{shlex.join(self.command)} --version` {error.problem}"
            raise ToolchainError(
                "C compiler", problem, got=error.got, expected=error.expected, hint=REMEDY, detail=error.detail
            ) from error
        return finished.stdout.strip()

    @property
    def is_zig(self) -> bool:
        """Whether this is ``zig cc``, with the machine at hand as default target, not a baseline."""
        return "ziglang" in self.command or Path(self.command[0]).stem == "zig"

    def arch_flags(self, march: str, target: str = "") -> tuple[str, ...]:
        """Return the flags for the machine and the instruction sets.

        Args:
            march: as in :class:`BuildOptions`.
            target: a target triple; empty for this machine.
        """
        machine = ("-target", target) if target else ()
        if march == "generic" or (target and march == "native"):
            return (*machine, "-mcpu=baseline") if self.is_zig else machine
        flags: tuple[str, ...] = (*machine, f"-march={march}")
        if self.is_zig and march != "native":
            flags = (*machine, f"-mcpu={march.replace('-', '_')}")
        elif march == "native" and platform.machine() not in ("x86_64", "AMD64"):
            flags = ("-mcpu=native",)
        if "avx512f" in features_of_macros(self._predefined_macros(flags)):
            flags += ("-mprefer-vector-width=512",)
        return flags

    def target(self, march: str, target: str = "") -> Target:
        """Return the machines able to run code compiled with these options.

        Raises:
            ToolchainError: the compiler does not know the machines.
        """
        if (march, target) not in self._targets:
            self._targets[march, target] = self._find_target(march, target)
        return self._targets[march, target]

    def _find_target(self, march: str, target: str) -> Target:
        macros = self._predefined_macros(self.arch_flags(march, target))
        if not target:
            return Target.local(features_of_macros(macros))
        found = target_of_macros(macros)
        if found is None:
            raise ToolchainError(
                "C compiler",
                f"generates code for a machine unknown to byoc: {target}",
                expected="Linux, macOS or Windows on x86-64 or AArch64, or Linux on RISC-V or POWER",
            )
        return found

    def flags(self, options: BuildOptions) -> tuple[str, ...]:
        """Return the whole list of flags for compiling, without files.

        Contraction of ``a*b+c`` is off; kernels request contraction explicitly. Errno and floating-point traps are not
        maintained, because nothing reads them. Results follow IEEE arithmetic in the order written.
        """
        return (
            "-std=c11",
            f"-O{options.opt_level}",
            *self.arch_flags(options.march, options.target),
            "-fPIC",
            "-fvisibility=hidden",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",
            *self._gcc_flags(options),
            *self._quiet_flags(),
            *(f"-I{folder}" for folder in options.include_dirs),
            *(flag for flag in options.extra_flags if not flag.startswith("-l")),
        )

    def _gcc_flags(self, options: BuildOptions) -> tuple[str, ...]:
        """Return the flags needed by gcc to vectorise short loops and limits, and to contract the same way everywhere.

        gcc unrolls loops of up to 16 rounds before vectorisation, and finds no vectors in unrolled code. Generated code
        itself marks the loops to unroll.

        A value limited to a range may be the constant at the limit. gcc computes what follows from the constant in a
        branch of its own (partial redundancy elimination, jump threading), and finds no vectors in loops with branches:
        a chain of quantisations took six times as long, an activation rounded to float16 ten times.

        For some processors (AMD's Zen, Intel's later ones from gcc 13 on) gcc contracts no products into a sum carried
        by a loop, but contracts the same in straight code: a row alone and a row among others would have other bits.
        """
        macros = self._predefined_macros(self.arch_flags(options.march, options.target))
        if "__GNUC__" not in macros or "__clang__" in macros:
            return ()
        knows_fma = int(macros["__GNUC__"]) >= 8
        flags = ("--param=max-completely-peel-times=15", "-fno-tree-pre", "-fno-thread-jumps")
        return (*flags, *(("--param=avoid-fma-max-bits=0",) if knows_fma else ()))

    def link_flags(self, options: BuildOptions) -> tuple[str, ...]:
        """Return the whole list of flags for linking, without files and libraries.

        A library uses its own functions and data, even if a process has others of the same names.
        """
        machine = self.arch_flags(options.march, options.target)
        flags = (flag for flag in options.extra_flags if not flag.startswith("-l"))
        return (*machine, "-fPIC", *self._link_steps(options), *self._quiet_flags(), *flags)

    def _link_steps(self, options: BuildOptions) -> tuple[str, ...]:
        system = self.target(options.march, options.target).system
        if system == "Darwin":
            origin = ("-Wl,-rpath,@loader_path",) if options.libraries else ()
            return ("-shared", "-Wl,-undefined,dynamic_lookup", *(() if self.is_zig else ("-Wl,-no_uuid",)), *origin)
        if system == "Windows":
            return ("-shared", "-s")
        origin = ("-Wl,-rpath,$ORIGIN",) if options.libraries else ()
        return ("-shared", "-s", "-Wl,--build-id=none", "-Wl,-Bsymbolic", "-Wl,-z,defs", *origin)

    def libraries(self, options: BuildOptions, texts: Iterable[str]) -> tuple[str, ...]:
        """Return the linker flags placed behind the files, for these C texts: the user's libraries first."""
        on_windows = self.target(options.march, options.target).system == "Windows"
        flags = (flag for flag in options.extra_flags if flag.startswith("-l"))
        own = ("-lm",) if on_windows or not any("pthread" in text for text in texts) else ("-lm", "-pthread")
        return (*self.linkage(options).flags, *flags, *own)

    def linkage(self, options: BuildOptions) -> Linkage:
        """Return the libraries and objects of the options with their files on this machine.

        Raises:
            ToolchainError: an object or a folder is missing.
        """
        if not (options.libraries or options.extra_objects or options.library_dirs):
            return Linkage()
        system = self.target(options.march, options.target).system
        find = self._find_default_file if not options.target else lambda _: None
        return find_linkage(options.libraries, options.library_dirs, options.extra_objects, system, find)

    def _find_default_file(self, name: str) -> str | None:
        """Return the path of a file in the compiler's own folders; ``None`` if missing or if the compiler is zig."""
        if self.is_zig:
            return None
        found = run_compiler([*self.command, f"-print-file-name={name}"], self.timeout_s).stdout.strip()
        return found if Path(found).is_absolute() and Path(found).is_file() else None

    def _quiet_flags(self) -> tuple[str, ...]:
        # Each step gets all flags of the user, even flags for another step; clang would warn.
        return ("-Wno-unused-command-line-argument",) if self.is_zig or "clang" in self.version else ()

    def compile(
        self,
        sources: str | Mapping[str, str],
        options: BuildOptions | None = None,
        *,
        defines: Sequence[str] = (),
        data_files: Mapping[str, bytes] | None = None,
    ) -> CompiledLibrary:
        """Compile C into a shared library.

        The same sources, options and compiler give the same bytes, at any place and time. ``byoc_ffi.h`` is on the
        include path and ``byoc_ffi.c`` is linked in. So is ``byoc_parallel.c`` if a source includes its header.

        Args:
            sources: a text, or texts by file name. Each ``*.c`` is a translation unit; the rest are headers.
            options: the build options; ``None`` for the defaults.
            defines: ``-D`` definitions.
            data_files: binary files included by the sources with ``.incbin``.

        Raises:
            ToolchainError: the compiler failed or ran too long. Shows the command, the exit status, the end of
                stderr and the lines at fault; the sources are kept.

        Cost: a compiler run for each unit, in parallel up to the number of processors, or reading a file if the same
        was built before.
        """
        from byoc_core.native.library_build import LibraryBuild

        options = options or BuildOptions()
        texts = translation_units(sources) if isinstance(sources, str) else dict(sources)
        files = {**support_files(texts), **texts}
        units = {name: text for name, text in files.items() if name.endswith(".c")}
        target = self.target(options.march, options.target)
        linkage = self.linkage(options)
        compile_command = (*self.command, *self.flags(options), *(f"-D{define}" for define in defines))
        own = [name for name in texts if name.endswith(".c")] if options.include_dirs else []
        headers = header_digests(compile_command, files, own, self.timeout_s) if own else []
        # Python keeps references to memory of the calling library.
        stays = ("-Wl,-z,nodelete",) if "byoc_python.c" in units and target.system == "Linux" else ()
        build = LibraryBuild(
            identity=[
                self.version,
                *_identity(self.command[0]),
                target.system,
                target.machine,
                *target.features,
                *headers,
            ],
            compile_command=compile_command,
            link_command=(*self.command, *self.link_flags(options), *stays),
            libraries=self.libraries(options, units.values()),
            linked=linkage.digests,
            shared=linkage.shared,
            units=units,
            headers={name: text for name, text in files.items() if name not in units},
            binary=dict(data_files or {}),
            timeout_s=self.timeout_s,
        )
        try:
            product = build.run(self._build_cache or BuildCache())
        except ToolchainError as error:
            if options.library_dirs and error.where in {f"library `{name}`" for name in options.libraries}:
                error.expected = f"{error.expected} or in {', '.join(options.library_dirs)}"
            raise
        return CompiledLibrary(product, target, linkage.shared)

    def keep_source(
        self, folder: str | os.PathLike[str], name: str, source: str, options: BuildOptions | None = None
    ) -> None:
        """Write C into a folder, created if missing: ``sh <name>.sh`` builds ``<name>.so`` there.

        Args:
            folder: gets ``<name>.c``, byoc's files compiled with ``<name>.c``, and ``<name>.sh``.
            name: base name of the files.
            source: the C text.
            options: the build options; ``None`` for the defaults.

        Raises:
            ToolchainError: the folder cannot be written.
        """
        options = options or BuildOptions()
        support = support_files({f"{name}.c": source})
        units = [f"{name}.c", *(file for file in support if file.endswith(".c"))]
        flags = (*self.flags(options), *self._link_steps(options))
        libraries = self.libraries(options, [source, *support.values()])
        command = shlex.join([*self.command, *flags, "-o", f"{name}.so", *units, *libraries])
        script = f'# {self.version.splitlines()[0]}\ncd "$(dirname "$0")" && {command}\n'
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            write_files(Path(folder), {**support, f"{name}.c": source, f"{name}.sh": script})
            for library, path in self.linkage(options).shared:
                shutil.copyfile(path, Path(folder) / library)
        except OSError as error:
            raise ToolchainError(f"folder `{os.fspath(folder)}`", f"cannot keep sources: {error}") from error

    def _predefined_macros(self, flags: tuple[str, ...]) -> Mapping[str, str]:
        """Return the texts of the predefined macros by name."""
        if flags not in self._macros:
            with tempfile.TemporaryDirectory(prefix="byoc-probe-", ignore_cleanup_errors=True) as folder:
                command = [*self.command, *flags, "-dM", "-E", "empty.c"]
                write_files(Path(folder), {"empty.c": "\n"})
                finished = run_compiler(command, self.timeout_s, folder=Path(folder))
            words = (line.split(maxsplit=2) for line in finished.stdout.splitlines())
            defined = ((*word[1:], "") for word in words if len(word) > 1 and word[0] == "#define")
            self._macros[flags] = {name: text for name, text, *_ in defined}
        return self._macros[flags]


def _identity(program: str) -> tuple[str, int, int]:
    """Return path, size and modification time of a compiler, to distinguish builds with equal version texts."""
    path = Path(program).resolve()
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0)
    return (str(path), status.st_size, status.st_mtime_ns)
