"""Inspection and checks of an artifact, without running any part of the artifact."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.artifact.loading import OpenedArtifact, check_payload, open_artifact
from byoc_core.artifact.manifest import split_report
from byoc_core.artifact.memory_need import MemoryNeed
from byoc_core.artifact.trusted import is_trusted
from byoc_core.dims import Dim
from byoc_core.printable import to_printable_lines
from byoc_core.runtime.module import Signature, TensorSpec

if TYPE_CHECKING:
    from byoc_core.vm.memory_map import MemoryMap
    from byoc_core.vm.program import Program
    from byoc_core.vm.state_summary import StateSummary

__all__ = ["InspectResult", "ModuleSummary", "RuntimeNeed", "inspect", "verify"]


@dataclass(frozen=True, slots=True)
class RuntimeNeed:
    """A runtime needed by an artifact.

    Attributes:
        type_key: the runtime's name.
        distribution: the distribution of the runtime, as stated by the artifact; anybody can write a name there.
        version: the version when the artifact was made.
        payload_format: the version of the runtime's payloads.
        is_installed: whether this environment has a usable runtime of this name.
    """

    type_key: str
    distribution: str
    version: str
    payload_format: int
    is_installed: bool


@dataclass(frozen=True, slots=True)
class ModuleSummary:
    """A runtime module of an artifact: kind, functions and size, and whether the module is native code."""

    type_key: str
    functions: tuple[str, ...]
    nbytes: int
    is_native: bool


@dataclass(frozen=True, slots=True, repr=False)
class InspectResult:
    """An artifact's description of itself.

    Attributes:
        path: the file.
        nbytes: the file's size.
        digest: the artifact's identity: the SHA-256 of the manifest.
        format_version: version of the artifact format.
        core_version: the byoc-core that made the artifact.
        functions: the callable functions.
        runtimes: the required runtimes.
        modules: the compiled regions.
        num_constants: the number of constants.
        constants_nbytes: the bytes of all constants.
        arena_nbytes: bytes planned for a call of each function: intermediates, and scratch memory of regions.
        memory: all memory needed by a call of each function.
        is_native: whether loading requires permission for native code.
        is_trusted: whether this user has given this permission for this artifact.
        members: size in bytes of each member, by name.
        listing: the program, disassembled.
        program: the program.
        report_data: the offload report, as data.
        request_data: the compilation request, as data; empty in artifacts of older versions.
        unchecked_modules: indexes of the modules with payloads not checked by any runtime: after :func:`inspect` all
            modules, after :func:`verify` the modules without an installed runtime able to check without loading.
    """

    path: str
    nbytes: int
    digest: str
    format_version: int
    core_version: str
    functions: Mapping[str, Signature]
    runtimes: tuple[RuntimeNeed, ...]
    modules: tuple[ModuleSummary, ...]
    num_constants: int
    constants_nbytes: int
    arena_nbytes: Mapping[str, Dim]
    memory: Mapping[str, MemoryNeed]
    is_native: bool
    is_trusted: bool
    members: Mapping[str, int]
    listing: str
    program: Program
    report_data: Mapping[str, Any]
    request_data: Mapping[str, Any]
    unchecked_modules: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return a description of the artifact and the offload report, as readable text."""
        shapes = [
            f"{name}({_specs_text(signature.inputs)}) -> ({_specs_text(signature.outputs)})"
            for name, signature in self.functions.items()
        ]
        kinds = [f"{module.type_key}: {', '.join(module.functions)}" for module in self.modules]
        head = [f"{self.path} ({self.nbytes:,} bytes), made by byoc-core {self.core_version}", *shapes, *kinds]
        return to_printable_lines("\n".join([*head, "", self.report()]))

    def __repr__(self) -> str:
        return f"<inspection of {self.path}: {', '.join(self.functions)}>"

    @property
    def states(self) -> Mapping[str, tuple[StateSummary, ...]]:
        """The states of each function with states: values kept from call to call, and the bytes copied by a call."""
        from byoc_core.vm.state_summary import summarise_states

        return {f.name: summarise_states(self.program, f) for f in self.program.functions if f.states}

    def memory_map(self, function: str = "main", sizes: Mapping[str, int] | None = None) -> MemoryMap:
        """Return the planned memory of a function, as :meth:`Executable.memory_map` does.

        Raises:
            CallError: there is no such function, or a size is missing.
        """
        from byoc_core.artifact.executable import Executable

        return Executable(self.program).memory_map(function, sizes)

    def report(self) -> str:
        """Return the offload report as readable text."""
        from byoc_core.reporting.text import render_report

        return render_report(self.report_data)

    def report_html(self, title: str = "Offload report") -> str:
        """Return the offload report as a self-contained page: the graph coloured by backend, and reasons."""
        from byoc_core.reporting.page import render_page

        return render_page(self.report_data, title)


def _specs_text(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(f"{spec.name}: {spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in specs)


def inspect(path: str | os.PathLike[str]) -> InspectResult:
    """Return an artifact's description of itself. Loads no module, runs nothing, reads no constant.

    Raises:
        ArtifactError: the file is no artifact, or the manifest or program is damaged.
        OSError: the file cannot be read.
    """
    return _summarise(open_artifact(path), os.fspath(path))


def verify(path: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> InspectResult:
    """Check every byte of an artifact: container, program, payloads and all constants. Runs no part of the artifact.

    Installed runtimes check the payloads against the runtimes' own laws; native code is not judged.

    Args:
        path: the file.
        progress: called with the bytes of constants checked so far and in all.

    Cost: two passes over the file.

    Raises:
        ArtifactError: something is damaged; names the member.
        OSError: the file cannot be read.
    """
    artifact = open_artifact(path)
    result = _summarise(artifact, os.fspath(path))
    artifact.check_payloads()
    constants = artifact.map_constants()
    from byoc_core.runtime.hooks import LoadContext

    context = LoadContext(constants, allow_native=False, source=artifact.where)
    modules = range(len(artifact.manifest.modules))
    unchecked = tuple(index for index in modules if not check_payload(artifact, index, context))
    done = 0
    for digest, entry in artifact.manifest.constants.items():
        constants.check(digest)
        done += entry.nbytes
        if progress is not None:
            progress(done, result.constants_nbytes)
    artifact.check_crcs()
    return replace(result, unchecked_modules=unchecked)


def _summarise(artifact: OpenedArtifact, path: str) -> InspectResult:
    from byoc_core.runtime.registry import runtimes
    from byoc_core.vm.disassemble import disassemble

    manifest = artifact.manifest
    installed = set(runtimes().names())
    program = artifact.read_program()
    artifact.map_constants()  # checks the sizes of constants
    digest = artifact.digest
    modules = tuple(
        ModuleSummary(
            entry.type_key,
            entry.functions,
            artifact.members[f"modules/{index}/payload"].nbytes,
            entry.native,
        )
        for index, entry in enumerate(manifest.modules)
    )
    constants_nbytes = sum(entry.nbytes for entry in manifest.constants.values())
    payload_nbytes = sum(module.nbytes for module in modules)
    parts = split_report(artifact.report_reader()())
    return InspectResult(
        path=path,
        nbytes=len(artifact.data),
        digest=digest,
        format_version=manifest.format_version,
        core_version=manifest.core_version,
        functions=MappingProxyType({entry.name: entry.to_signature() for entry in manifest.functions}),
        runtimes=tuple(
            RuntimeNeed(e.type_key, e.distribution, e.version, e.payload_format, e.type_key in installed)
            for e in manifest.runtimes
        ),
        modules=modules,
        num_constants=len(manifest.constants),
        constants_nbytes=constants_nbytes,
        arena_nbytes=MappingProxyType({function.name: function.arena_nbytes for function in program.functions}),
        memory=MappingProxyType(
            {f.name: MemoryNeed.of(f, constants_nbytes, payload_nbytes) for f in program.functions}
        ),
        is_native=any(module.is_native for module in modules),
        is_trusted=is_trusted(digest),
        members=MappingProxyType({name: member.nbytes for name, member in artifact.members.items()}),
        listing=disassemble(program),
        program=program,
        report_data=MappingProxyType(parts.report),
        request_data=MappingProxyType(parts.request),
        unchecked_modules=tuple(range(len(modules))),
    )
