"""The system's C compiler: found, asked what it is, and run.

Looked for, in this order: ``$BYOC_CC``, ``$CC`` (a command line each), ``cc``, ``gcc``, ``clang``, and the ``ziglang``
package from PyPI (``python -m ziglang cc``). A variable that is set decides: nothing else is tried behind its back.

``-ffast-math`` is refused: linking with it switches the whole process to flush-to-zero arithmetic.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from byoc_core.errors import OptionsError, ToolchainError
from byoc_core.native.build_cache import BuildCache
from byoc_core.native.compiler_errors import compiler_failure
from byoc_core.native.cpu import Target, features_of_macros

if TYPE_CHECKING:
    import subprocess

__all__ = [
    "BuildOptions",
    "CompiledLibrary",
    "Toolchain",
    "ToolchainStatus",
    "find_toolchain",
    "has_parallel_loops",
    "include_directory",
]

_REMEDY = "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler."
_FORBIDDEN = ("-ffast-math", "-Ofast", "-funsafe-math-optimizations", "-ffinite-math-only", "-o", "-c", "-S", "-E")
_SUPPORT_FILES = (
    "byoc_ffi.h",
    "byoc_scalar.h",
    "byoc_floats.h",
    "byoc_half.h",
    "byoc_math_f32.h",
    "byoc_math_f64.h",
    "byoc_activations.h",
    "byoc_ffi.c",
)
_PARALLEL_FILES = ("byoc_parallel.h", "byoc_parallel.c")
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How C is compiled.

    Attributes:
        opt_level: 0 to 3.
        march: ``"native"`` (this machine's instruction sets, recorded and checked when loaded), ``"generic"`` (the
            processor family's baseline), or a name that the compiler knows.
        extra_flags: further compiler flags, last on the command line.
    """

    opt_level: int = 3
    march: str = "native"
    extra_flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.opt_level not in range(4):
            raise OptionsError("option `opt_level`", "value not permitted", got=self.opt_level, expected="0 to 3")
        for flag in self.extra_flags:
            if flag in _FORBIDDEN:
                raise OptionsError("option `extra_flags`", f"flag {flag} is not permitted")


@dataclass(frozen=True, slots=True)
class CompiledLibrary:
    """A shared library's bytes and the machines that can run it."""

    data: bytes = field(repr=False)
    target: Target


@dataclass(frozen=True, slots=True)
class ToolchainStatus:
    """Whether C can be compiled here; if not, why, and what to do."""

    ok: bool
    reason: str = ""
    remedy: str = ""


def include_directory() -> Path:
    """Gives the folder of ``byoc_ffi.h``, ``byoc_ffi.c`` and their like, for compiling generated C by hand."""
    return Path(__file__).parent


def has_parallel_loops(source: str) -> bool:
    """Tells whether a C text may run loops on several threads: it includes ``byoc_parallel.h``."""
    return f'#include "{_PARALLEL_FILES[0]}"' in source


@cache
def _read_files(names: tuple[str, ...]) -> dict[str, str]:
    return {name: (include_directory() / name).read_text(encoding="utf-8") for name in names}


def _support_files(texts: Mapping[str, str]) -> dict[str, str]:
    """Gives the files that are compiled with these: those for parallel loops only where a text includes them."""
    parallel = any(map(has_parallel_loops, texts.values()))
    return _read_files((*_SUPPORT_FILES, *(_PARALLEL_FILES if parallel else ())))


def _find_command() -> tuple[str, ...]:
    for variable in ("BYOC_CC", "CC"):
        given = os.environ.get(variable)
        if given:
            try:
                command = shlex.split(given)
            except ValueError:
                command = []
            found = shutil.which(command[0]) if command else None
            if found is None:
                raise ToolchainError(f"${variable}", f"names no program that can be run: {given!r}", hint=_REMEDY)
            return (found, *command[1:])
    for name in ("cc", "gcc", "clang"):
        found = shutil.which(name)
        if found is not None:
            return (found,)
    if find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise ToolchainError("C compiler", "none was found (cc, gcc, clang, ziglang)", hint=_REMEDY)


def find_toolchain() -> Toolchain:
    """Gives the C compiler of this machine; cheap after the first time (what it says of itself is remembered).

    Raises:
        ToolchainError: there is none; the text has the remedy.
    """
    return _toolchain_for(_find_command())


@cache
def _toolchain_for(command: tuple[str, ...]) -> Toolchain:
    return Toolchain(command)


class Toolchain:
    """A C compiler driven as ``gcc`` is.

    Args:
        command: program and leading arguments.
        build_cache: where products are kept; ``None`` for the user's cache.
        timeout_s: seconds after which a run is given up.
    """

    def __init__(
        self, command: Sequence[str], *, build_cache: BuildCache | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.command = tuple(command)
        self.timeout_s = timeout_s
        self._build_cache = build_cache
        self._macros: dict[tuple[str, ...], tuple[str, ...]] = {}

    @staticmethod
    def status() -> ToolchainStatus:
        """Tells whether C can be compiled here. Runs the compiler once (``--version``)."""
        try:
            toolchain = find_toolchain()
            toolchain.version  # noqa: B018 - asking is what runs it
        except ToolchainError as error:
            got = f" ({error.got})" if error.got is not None else ""
            reason = f"{error.where}: {error.problem}{got}"
            return ToolchainStatus(ok=False, reason=reason, remedy=error.hint or _REMEDY)
        return ToolchainStatus(ok=True)

    @cached_property
    def version(self) -> str:
        """What the compiler prints for ``--version``.

        Raises:
            ToolchainError: it does not run.
        """
        try:
            finished = self._run([*self.command, "--version"], {})
        except ToolchainError as error:
            problem = f"`{shlex.join(self.command)} --version` {error.problem}"
            raise ToolchainError(
                "C compiler", problem, got=error.got, expected=error.expected, hint=_REMEDY, detail=error.detail
            ) from error
        return finished.stdout.strip()

    @property
    def is_zig(self) -> bool:
        """Tells whether this is ``zig cc``, whose default target is the machine at hand, not a baseline."""
        return "ziglang" in self.command or Path(self.command[0]).stem == "zig"

    def arch_flags(self, march: str) -> tuple[str, ...]:
        """Gives the flags that choose the instruction sets for a ``march`` option."""
        if march == "generic":
            return ("-mcpu=baseline",) if self.is_zig else ()
        flags: tuple[str, ...] = (f"-march={march}",)
        if march == "native" and platform.machine() not in ("x86_64", "AMD64"):
            flags = ("-mcpu=native",)
        if "avx512f" in features_of_macros(self._predefined_macros(flags)):
            flags += ("-mprefer-vector-width=512",)
        return flags

    def target(self, march: str) -> Target:
        """Gives the machines that can run what is compiled with a ``march`` option."""
        return Target.here(features_of_macros(self._predefined_macros(self.arch_flags(march))))

    def flags(self, options: BuildOptions) -> tuple[str, ...]:
        """Gives the whole list of compiler flags, files excepted.

        Contraction of ``a*b+c`` is off (kernels that want it say so themselves); errno and floating-point traps, which
        nothing reads, are not kept up. Results are those of IEEE arithmetic in the order written.
        """
        linker = () if sys.platform == "darwin" else ("-s", "-Wl,--build-id=none")
        if sys.platform == "darwin":
            linker = ("-Wl,-undefined,dynamic_lookup", "-Wl,-no_uuid")
        return (
            "-std=c11",
            f"-O{options.opt_level}",
            *self.arch_flags(options.march),
            "-fPIC",
            "-shared",
            "-fvisibility=hidden",
            "-ffp-contract=off",
            "-fno-math-errno",
            "-fno-trapping-math",
            *linker,
            *options.extra_flags,
        )

    def compile(
        self,
        sources: str | Mapping[str, str],
        options: BuildOptions | None = None,
        *,
        defines: Sequence[str] = (),
        data_files: Mapping[str, bytes] | None = None,
    ) -> CompiledLibrary:
        """Compiles C into a shared library.

        The same sources, options and compiler give the same bytes, wherever and whenever. ``byoc_ffi.h`` is on the
        include path and ``byoc_ffi.c`` is linked in; so is ``byoc_parallel.c`` where a source includes its header.

        Args:
            sources: one text, or texts by file name (each ``*.c`` is a translation unit, the rest are headers).
            options: how; the defaults where ``None``.
            defines: ``-D`` definitions.
            data_files: binary files that the sources include with ``.incbin``.

        Raises:
            ToolchainError: the compiler failed or ran too long. Shows the command, the exit status, the end of
                stderr and the lines at fault; the sources are kept.

        Cost: a compiler run, or reading one file where the same was built before.
        """
        options = options or BuildOptions()
        texts = {"module.c": sources} if isinstance(sources, str) else dict(sources)
        files = {**_support_files(texts), **texts}
        flags = (*self.flags(options), *(f"-D{define}" for define in defines))
        binary = dict(data_files or {})
        units = [name for name in files if name.endswith(".c")]
        libraries = ("-lm", "-pthread") if "byoc_parallel.c" in files else ("-lm",)
        command = [*self.command, *flags, "-o", "module.so", *units, *libraries]
        target = self.target(options.march)
        key = self._key(command, files, binary, target)
        store = self._build_cache or BuildCache()
        product = store.get(key)
        if product is None:
            product = self._build(command, files, binary)
            store.put(key, product)
        return CompiledLibrary(product, target)

    def _key(
        self, command: Sequence[str], files: Mapping[str, str], binary: Mapping[str, bytes], target: Target
    ) -> bytes:
        import hashlib

        document = {
            "command": list(command),
            "compiler": [self.version, *_identity(self.command[0])],
            "target": [target.system, target.machine, *target.features],
            "files": files,
            "binary": {name: hashlib.sha256(data).hexdigest() for name, data in binary.items()},
        }
        return json.dumps(document, sort_keys=True).encode()

    def _build(self, command: Sequence[str], files: Mapping[str, str], binary: Mapping[str, bytes]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="byoc-build-", ignore_cleanup_errors=True) as folder:
            for name, data in binary.items():
                (Path(folder) / name).write_bytes(data)
            self._run(command, files, folder=Path(folder))
            try:
                return (Path(folder) / "module.so").read_bytes()
            except FileNotFoundError as error:
                raise ToolchainError(
                    "C compiler", "wrote no library", hint=_REMEDY, detail=f"command: {shlex.join(command)}"
                ) from error

    def _predefined_macros(self, flags: tuple[str, ...]) -> tuple[str, ...]:
        if flags not in self._macros:
            with tempfile.TemporaryDirectory(prefix="byoc-probe-", ignore_cleanup_errors=True) as folder:
                command = [*self.command, *flags, "-dM", "-E", "empty.c"]
                finished = self._run(command, {"empty.c": "\n"}, folder=Path(folder))
            words = (line.split(maxsplit=2) for line in finished.stdout.splitlines())
            self._macros[flags] = tuple(word[1] for word in words if len(word) > 1 and word[0] == "#define")
        return self._macros[flags]

    def _run(
        self, command: Sequence[str], files: Mapping[str, str], *, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        if folder is not None:
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
        import subprocess  # a process that only runs what is compiled already needs none of it

        status: int | str
        try:
            finished = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except subprocess.TimeoutExpired:
            status, stderr = f"none: timed out after {self.timeout_s:g} s", ""
        except OSError as error:
            raise ToolchainError("C compiler", f"cannot be run: {error}", hint=_REMEDY) from error
        else:
            if finished.returncode == 0:
                return finished
            status, stderr = finished.returncode, finished.stderr
        raise compiler_failure(command, status, stderr, files, _keep(files) if files else None)


def _identity(program: str) -> tuple[str, int, int]:
    """Tells one build of a compiler from the next, even where both print the same version."""
    path = Path(program).resolve()
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0)
    return (str(path), status.st_size, status.st_mtime_ns)


def _keep(files: Mapping[str, str]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="byoc-failed-"))
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return str(folder)
