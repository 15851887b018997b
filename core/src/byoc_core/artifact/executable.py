"""What compiling gives and loading gives back: a program with its modules, constants and report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.artifact.manifest import split_request
from byoc_core.dims import Dim
from byoc_core.errors import CallError, near_names
from byoc_core.runtime.module import NDArray, RuntimeModule, Signature

if TYPE_CHECKING:
    from byoc_core.vm.program import Program

__all__ = ["Executable"]


@dataclass(frozen=True, eq=False, init=False)
class Executable:
    """A compiled model. Give it to :class:`byoc_core.VirtualMachine` to run it.

    Attributes:
        program: the VM's bytecode.
        modules: the compiled regions, in the order in which the program looks for its externs.
        constants: read-only arrays by digest: those that the program and the modules cite.
    """

    program: Program
    modules: tuple[RuntimeModule, ...]
    constants: Mapping[str, NDArray]
    is_own: bool
    _report: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    _request: Mapping[str, Any]

    def __init__(
        self,
        program: Program,
        modules: Iterable[RuntimeModule] = (),
        constants: Mapping[str, NDArray] = MappingProxyType({}),
        report: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = MappingProxyType({}),
        *,
        is_own: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        object.__setattr__(self, "program", program)
        object.__setattr__(self, "modules", tuple(modules))
        object.__setattr__(self, "constants", constants)
        object.__setattr__(self, "_report", report)
        object.__setattr__(self, "_request", request)
        object.__setattr__(self, "is_own", is_own)

    @property
    def report_data(self) -> Mapping[str, Any]:
        """Who took what and why not, as plain JSON values; read from the artifact when first asked for.

        Raises:
            ArtifactError: the artifact's file is not the one any more that was loaded.
        """
        report = self._report
        if callable(report):
            report, request = split_request(report())
            object.__setattr__(self, "_report", report)
            object.__setattr__(self, "_request", request)
        return report

    @property
    def request_data(self) -> Mapping[str, Any]:
        """What was asked of the compilation, as plain JSON values: the fields of a :class:`byoc_core.CompileRequest`.

        Objects of Python are there by their names. Empty where an older byoc-core made the artifact.

        Raises:
            ArtifactError: the artifact's file is not the one any more that was loaded.
        """
        _ = self.report_data  # reads both
        return self._request

    @property
    def functions(self) -> Mapping[str, Signature]:
        """What each function that can be called takes and gives, in order."""
        return MappingProxyType(
            {function.name: Signature(function.params, function.results) for function in self.program.functions}
        )

    @property
    def arena_nbytes(self) -> Mapping[str, Dim]:
        """The bytes that were planned for a call of each function: intermediates, and scratch memory of regions.

        Regions that take no scratch memory from their caller may allocate more inside.
        """
        return MappingProxyType({function.name: function.arena_nbytes for function in self.program.functions})

    def signature(self, name: str) -> Signature:
        """Gives the signature of one function.

        Raises:
            CallError: there is no such function; the known names are listed.
        """
        functions = self.functions
        if name not in functions:
            raise CallError(
                "executable",
                f"has no function `{name}`",
                expected=", ".join(functions) or "no function at all",
                hint=near_names(name, functions) or None,
            )
        return functions[name]

    def report(self) -> str:
        """Gives the offload report as text: which backend took which share, and why ops stayed on the host."""
        from byoc_core.reporting.text import render_report

        return render_report(self.report_data)

    def report_html(self, title: str = "Offload report") -> str:
        """Gives the offload report as a page that needs no other file: the graph coloured by backend, and reasons."""
        from byoc_core.reporting.page import render_page

        return render_page(self.report_data, title)

    def require_offload(self, share: float) -> None:
        """Checks that at least this share of the FLOPs, from 0 to 1, is not the host's; symbolic sizes count as 1.

        A region that a backend of static shapes compiles at first use counts as offloaded, though a call may bring
        sizes that the backend refuses. Of what :meth:`save` writes, ask ``as_saved().require_offload(share)``: there a
        region counts as the host's if it is compiled for no sizes.

        Raises:
            PartitionError: it is not; names the share and the most expensive reasons.
            OptionsError: ``share`` is not between 0 and 1.
        """
        from byoc_core.reporting.gate import check_offload

        check_offload(self.report_data, share)

    def get_source(self) -> str:
        """Gives the sources of all modules, one after the other."""
        return "\n\n".join(filter(None, (module.get_source() for module in self.modules)))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
        respecializable: bool = False,
    ) -> None:
        """Writes the artifact; the file appears whole or not at all, and equal executables give equal bytes.

        Native code that this process compiled is recorded as trusted for this user, as ``byoc compile`` does it: the
        artifact loads without ``allow_native``. Native code that was loaded with permission is not.

        What a backend of static shapes compiles at first use here, the host may run in the artifact: the log says so.

        Args:
            path: the file; an existing one is replaced.
            progress: called with the bytes written so far and in all.
            respecializable: also write what a compiler needs to compile regions of static shapes for more sizes (see
                :func:`byoc_core.load`); else the artifact holds the sizes of ``build(specialize=...)``, and the host
                runs others.

        Raises:
            RuntimeNotFoundError: the runtime that saves one of the modules is not installed.
            PluginError: it is, and cannot save.
            OSError: the file cannot be written.
        """
        from byoc_core.artifact.saving import save
        from byoc_core.reporting.saved import warn_of_lost_offload

        saved = self.as_saved(respecializable=respecializable)
        save(saved, path, progress=progress)
        if saved is not self and not respecializable:
            warn_of_lost_offload(self.report_data, saved.report_data, path)

    def to_bytes(self) -> bytes:
        """Gives what :meth:`save` would write."""
        from byoc_core.artifact.saving import to_bytes

        return to_bytes(self.as_saved())

    def as_saved(self, *, respecializable: bool = False) -> Executable:
        """Return the executable as an artifact holds it, with the report that is true of the artifact.

        The report of a region that is compiled at first use only says that the host runs it: whoever loads the artifact
        has no compiler.

        Args:
            respecializable: see :meth:`save`, which is to be given the same.
        """
        from byoc_core.reporting.saved import report_of_artifact
        from byoc_core.runtime.specialised import SpecialisedModule

        changed = {
            index: module.saved_with_recipe(keep=respecializable)
            for index, module in enumerate(self.modules)
            if isinstance(module, SpecialisedModule)
        }
        if not changed:
            return self
        modules = [changed.get(index, module) for index, module in enumerate(self.modules)]
        report = report_of_artifact(self.report_data, changed.values())
        request = self.request_data
        return Executable(self.program, modules, self.constants, report, is_own=self.is_own, request=request)

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Writes one shared library: all generated C, compiled, and the whole artifact as data.

        :func:`byoc_core.load_module` loads it again; programs that know nothing of byoc call the regions by their
        ``__tvm_ffi_<symbol>`` exports.

        Raises:
            ToolchainError: no C compiler, or it failed.
        """
        from byoc_core.artifact.library_export import export_library

        export_library(self, path)

    def __repr__(self) -> str:
        kinds = ", ".join(module.type_key for module in self.modules) or "no modules"
        return f"<executable {', '.join(self.functions)}: {kinds}>"
