"""Shared libraries holding a whole executable, and modules loaded from files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from byoc_core.artifact.executable import Executable
from byoc_core.artifact.loading import OpenedArtifact, load, load_opened
from byoc_core.errors import ArtifactError
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule, Signature

__all__ = ["ExecutableModule", "load_module"]

_LIBRARY_SUFFIXES = (".so", ".dylib", ".dll")


class ExecutableModule(RuntimeModule):
    """An executable as a runtime module: the functions of the executable, and the compiled regions called by them.

    A function and a region write into the caller's buffers. A name shared by both means the function.

    Args:
        executable: the executable to run, through one virtual machine.
    """

    def __init__(self, executable: Executable) -> None:
        from byoc_core.vm.machine import VirtualMachine

        self.executable = executable
        self._machine = VirtualMachine(executable)
        self._signatures = executable.functions
        self._owners: dict[str, RuntimeModule] = {}
        for module in executable.modules:
            for name in module.function_names:
                if name not in self._signatures:
                    self._owners.setdefault(name, module)

    @property
    def type_key(self) -> str:
        """``"executable"``."""
        return "executable"

    @property
    def function_names(self) -> tuple[str, ...]:
        """The executable's functions, then the regions."""
        return (*self._signatures, *self._owners)

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The executable's constants."""
        return MappingProxyType(self.executable.constants)

    @property
    def is_native(self) -> bool:
        """Whether any of the executable's modules is native code."""
        return any(module.is_native for module in self.executable.modules)

    def find_function(self, name: str) -> PackedFunction:
        """Return a function running in the virtual machine, or a region by itself."""
        if name in self._owners:
            return self._owners[name].find_function(name)
        signature = self._signatures[name]
        return PackedFunction(name, _Caller(self._machine[name].run, signature), signature)

    def report_parts(self) -> None:
        """Report the parts of the calls of all modules."""
        for module in self.executable.modules:
            module.report_parts()

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the sources in a format, of all modules with a source in this format."""
        return "\n\n".join(filter(None, (module.get_source(format) for module in self.executable.modules)))


class _Caller:
    """A function of a virtual machine as a packed function: fills buffers, or returns the allocated results."""

    def __init__(self, run: Callable[..., object], signature: Signature) -> None:
        self._run = run
        self._returns = bool(signature.new_symbols)
        self._inputs = tuple(spec.name for spec in signature.inputs)
        self._outputs = tuple(spec.name for spec in signature.outputs)

    def __call__(self, *arrays: NDArray) -> object:
        if self._returns:
            return self._run(dict(zip(self._inputs, arrays, strict=True)))
        count = len(self._inputs)
        self._run(
            dict(zip(self._inputs, arrays, strict=False)), out=dict(zip(self._outputs, arrays[count:], strict=True))
        )
        return None


def load_module(path: str | os.PathLike[str], format: str | None = None) -> RuntimeModule:  # noqa: A002 - as in TVM
    """Load a runtime module from a file.

    Args:
        path: a library written by :meth:`Executable.export_library`, an artifact, or a file in a format read by an
            installed runtime. A library is native code: load only libraries of trusted origin.
        format: the format's name, if the ending of the file's name does not state the format.

    Raises:
        ArtifactError: the file is damaged, has a mistake, or is a library of another making.
        UntrustedCodeError: the file is an artifact with native code not compiled by this user (use :func:`load`).
        RuntimeNotFoundError: no installed runtime reads the format.
        OSError: the file cannot be read.
    """
    file = Path(path)
    name = format or file.suffix.removeprefix(".")
    if not name:
        raise ArtifactError(
            f"file `{file}`",
            "the file name does not state the format",
            hint='Name the format: load_module(path, "format").',
        )
    if f".{name}" in _LIBRARY_SUFFIXES or (format is None and ".so." in file.name):
        return _load_library(file)
    if name == "byoc":
        return ExecutableModule(load(file))

    from byoc_core.runtime.hooks import LoadContext
    from byoc_core.runtime.registry import runtimes

    data = file.read_bytes()
    return runtimes().for_file_format(name).load_file(data, name, LoadContext(source=f"file `{file}`"))


def _load_library(file: Path) -> RuntimeModule:
    from byoc_core.native.bundle import read_bundle

    where = f"library `{file}`"
    blob = read_bundle(file)
    if blob is None:
        raise ArtifactError(where, "holds no byoc artifact", hint="Libraries are made by `Executable.export_library`.")
    return ExecutableModule(load_opened(OpenedArtifact.open(memoryview(blob), where), allow_native=True))
