"""The result of compiling and of loading: a program with modules, constants and report."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.artifact.manifest import split_report
from byoc_core.artifact.weight_table import WeightTable, decode_weights
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_name
from byoc_core.errors import CallError, near_names
from byoc_core.runtime.module import NDArray, RuntimeModule, Signature

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from byoc_core.artifact.adapters import Adapter
    from byoc_core.runtime.pools import Pool
    from byoc_core.vm.memory_map import MemoryMap
    from byoc_core.vm.program import Program
    from byoc_core.vm.state_summary import StateSummary

__all__ = ["Executable"]


@dataclass(frozen=True, eq=False, init=False)
class Executable:
    """A compiled model, run by :class:`byoc_core.VirtualMachine`.

    Attributes:
        program: the VM's bytecode.
        modules: the compiled regions; searched in this order for the program's externs.
        constants: read-only arrays by digest, cited by the program and the modules.
        is_own: whether this process compiled the native code, or this user trusts the loaded artifact; then
            :meth:`save` records the new artifact as trusted.
        artifact: the bytes of the loaded artifact, usually a mapped file; ``None`` for an executable compiled by this
            process, and for an artifact with constants in another file.
    """

    program: Program
    modules: tuple[RuntimeModule, ...]
    constants: Mapping[str, NDArray]
    is_own: bool
    artifact: memoryview | None
    _report: Mapping[str, Any] | Callable[[], Mapping[str, Any]]
    _request: Mapping[str, Any]
    _weights: WeightTable

    def __init__(
        self,
        program: Program,
        modules: Iterable[RuntimeModule] = (),
        constants: Mapping[str, NDArray] = MappingProxyType({}),
        report: Mapping[str, Any] | Callable[[], Mapping[str, Any]] = MappingProxyType({}),
        *,
        is_own: bool = False,
        request: Mapping[str, Any] = MappingProxyType({}),
        weights: WeightTable | None = None,
        artifact: memoryview | None = None,
    ) -> None:
        object.__setattr__(self, "program", program)
        object.__setattr__(self, "modules", tuple(modules))
        object.__setattr__(self, "constants", constants)
        object.__setattr__(self, "_report", report)
        object.__setattr__(self, "_request", request)
        object.__setattr__(self, "_weights", weights or WeightTable())
        object.__setattr__(self, "is_own", is_own)
        object.__setattr__(self, "artifact", artifact)

    @property
    def report_data(self) -> Mapping[str, Any]:
        """The offload report as plain JSON values: claims and refusals; read from the artifact at first use.

        Raises:
            ArtifactError: the artifact's file is no longer the loaded file.
        """
        report = self._report
        if callable(report):
            parts = split_report(report())
            weights = decode_weights(parts.weights, len(self.program.constants), self._find_constant, "executable")
            report = parts.report
            object.__setattr__(self, "_report", report)
            object.__setattr__(self, "_request", parts.request)
            object.__setattr__(self, "_weights", weights)
        return report

    def _find_constant(self, digest: str) -> tuple[str, tuple[int, ...]] | None:
        array = self.constants.get(digest)
        return None if array is None else (dtype_name(array.dtype), tuple(array.shape))

    @property
    def request_data(self) -> Mapping[str, Any]:
        """The compilation request, as plain JSON values: the fields of a :class:`byoc_core.CompileRequest`.

        Python objects are present by name. Empty for artifacts of an older byoc-core.

        Raises:
            ArtifactError: the artifact's file is no longer the loaded file.
        """
        _ = self.report_data  # reads report and request
        return self._request

    @property
    def weights(self) -> WeightTable:
        """The swappable weights, and the other weights of the model with the reasons; empty without swappable weights.

        Raises:
            ArtifactError: the artifact's file is no longer the loaded file, or the table is malformed.
        """
        _ = self.report_data  # reads report, request and weights
        return self._weights

    @property
    def functions(self) -> Mapping[str, Signature]:
        """The signature of each callable function, in order; without states, kept by the machine from call to call."""
        return MappingProxyType(
            {function.name: Signature(function.inputs, function.outputs) for function in self.program.functions}
        )

    @property
    def states(self) -> Mapping[str, tuple[StateSummary, ...]]:
        """The states of each function with states: values kept from call to call, and the bytes copied by a call."""
        from byoc_core.vm.state_summary import summarise_states

        return MappingProxyType({f.name: summarise_states(self.program, f) for f in self.program.functions if f.states})

    @property
    def arena_nbytes(self) -> Mapping[str, Dim]:
        """The bytes planned for a call of each function: intermediates, and scratch memory of regions.

        Regions that take no scratch memory from the caller may allocate more inside.
        """
        return MappingProxyType({function.name: function.arena_nbytes for function in self.program.functions})

    def signature(self, name: str) -> Signature:
        """Return the signature of a function.

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

    def memory_map(self, function: str = "main", sizes: Mapping[str, int] | None = None) -> MemoryMap:
        """Return the planned memory of a function: buffers with live ranges and offsets, arena, and lower bound.

        Args:
            function: the name of the function.
            sizes: the sizes of the inputs' symbols; ``None`` leaves symbolic sizes as symbols.

        Raises:
            CallError: there is no such function, or a size is missing.
        """
        from byoc_core.vm.memory_map import memory_map

        self.signature(function)  # refuses unknown names
        index = self.program.function_names.index(function)
        return memory_map(self.program, self.program.functions[index], sizes)

    def report(self) -> str:
        """Return the offload report as text: the share of each backend, and the reasons for ops on the host."""
        from byoc_core.reporting.text import render_report

        return render_report(self.report_data)

    def report_html(self, title: str = "Offload report") -> str:
        """Return the offload report as a self-contained page: the graph coloured by backend, and reasons."""
        from byoc_core.reporting.page import render_page

        return render_page(self.report_data, title)

    def require_offload(self, share: float) -> None:
        """Check that at least this share of the FLOPs, from 0 to 1, is offloaded; symbolic sizes count as 1.

        A region compiled at first use by a backend with static shapes counts as offloaded, though a call may bring
        sizes refused by the backend. For an artifact written by :meth:`save`, use
        ``as_saved().require_offload(share)``: there a region compiled for no sizes counts as the host's.

        Raises:
            PartitionError: less is offloaded; names the share and the most expensive reasons.
            OptionsError: ``share`` is not between 0 and 1.
        """
        from byoc_core.reporting.gate import check_offload

        check_offload(self.report_data, share)

    def get_source(self) -> str:
        """Return the sources of all modules, one after the other."""
        return "\n\n".join(filter(None, (module.get_source() for module in self.modules)))

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        progress: Callable[[int, int], None] | None = None,
        respecializable: bool = False,
    ) -> None:
        """Write the artifact; the file appears whole or not at all, and equal executables give equal bytes.

        Native code compiled by this process is recorded as trusted for this user, as by ``byoc compile``: the artifact
        loads without ``allow_native``. Native code loaded with permission is not recorded.

        Regions compiled at first use here by a backend with static shapes may run on the host in the artifact: the log
        reports these.

        Args:
            path: the file; an existing file is replaced.
            progress: called with the bytes written so far and in all.
            respecializable: also write the data needed by a compiler to compile regions of static shapes for more sizes
                (see :func:`byoc_core.load`); else the artifact holds the sizes of ``build(specialize=...)``, and the
                host runs others.

        Raises:
            RuntimeNotFoundError: the runtime for saving a module is not installed.
            PluginError: the runtime is installed, but cannot save.
            OSError: the file cannot be written.
        """
        from byoc_core.artifact.saving import save
        from byoc_core.reporting.saved import warn_of_lost_offload

        saved = self.as_saved(respecializable=respecializable)
        save(saved, path, progress=progress)
        if saved is not self and not respecializable:
            warn_of_lost_offload(self.report_data, saved.report_data, path)

    def to_bytes(self) -> bytes:
        """Return the bytes of the file that :meth:`save` would write by default."""
        from byoc_core.artifact.saving import to_bytes

        return to_bytes(self.as_saved())

    def as_saved(self, *, respecializable: bool = False) -> Executable:
        """Return the executable in the form held by an artifact, with a report true of the artifact.

        A region compiled only at first use is the host's in this report: a loaded artifact has no compiler.

        Args:
            respecializable: the same value as for :meth:`save`; see there.
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
        return Executable(
            self.program,
            modules,
            self.constants,
            report,
            is_own=self.is_own,
            request=request,
            weights=self.weights,
        )

    def with_weights(self, values: Mapping[str, npt.ArrayLike]) -> Executable:
        """Return the executable with other values of swappable weights; all other weights and the code are shared.

        Args:
            values: the new values by name; the other weights keep their values.

        Raises:
            WeightsError: a weight is unknown or not swappable, or a value has another dtype or shape.
        """
        from byoc_core.artifact.weight_values import executable_with_weights

        return executable_with_weights(self, values)

    def with_adapters(self, adapters: Iterable[Adapter | str | os.PathLike[str]]) -> Executable:
        """Return the executable with low-rank adapters added to weights; all other weights and the code are shared.

        Args:
            adapters: adapters, or paths for :func:`byoc_core.artifact.load_adapter`.

        Raises:
            WeightsError: an adapter does not fit the weights.
            OSError: a file cannot be read.
        """
        from byoc_core.artifact.adapters import adapted_values, open_adapters
        from byoc_core.artifact.weight_values import executable_with_weights

        opened = open_adapters(adapters)
        values = adapted_values(self.weights, self.constants.__getitem__, opened, "executable")
        return executable_with_weights(self, values, copies=False)

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write one shared library: all generated C, compiled, and the whole artifact as data.

        :func:`byoc_core.load_module` loads the library again; programs unaware of byoc call the regions by the
        ``__tvm_ffi_<symbol>`` exports.

        Raises:
            ToolchainError: no C compiler, or the C compiler failed.
        """
        from byoc_core.artifact.library_export import export_library

        export_library(self, path)

    def export_c(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str = "model",
        max_sizes: Mapping[str, int] | None = None,
        constants: str = "auto",
        test_inputs: Mapping[str, NDArray] | None = None,
        pools: Sequence[Pool] = (),
        places_arguments: bool = False,
    ) -> tuple[Path, ...]:
        """Write the functions as C11 sources with a header, a test program, a Makefile and a CMake file.

        The C uses no heap, no threads and no written globals; intermediates lie in a workspace of the caller. The
        function ``main`` becomes ``<name>_run(inputs, outputs, workspace)``.

        Args:
            folder: created if missing; files of the same names are replaced.
            name: the prefix of all C names, a C identifier. Models with different names may be linked together.
            max_sizes: the largest size of each symbol: the bytes of the workspace are then a constant. Without largest
                sizes, a function of the header returns the bytes for given sizes.
            constants: ``"array"`` for C arrays, ``"object"`` for a binary file included by the assembler, ``"file"``
                for a file ``<name>.weights``, mapped or read by the caller and passed as the last argument of each run,
                ``"auto"`` for arrays up to 256 KiB in all, or of any size if the C is for any compiler, else
                ``"object"``.
            test_inputs: inputs of the test program by name; inputs left out are drawn at random.
            pools: the memories of a run, in order of preference: often used buffers go to the first pools within their
                limits. A pool without access ``write`` only limits the bytes of the constants. By default, a single
                workspace without limit.
            places_arguments: whether inputs and outputs lie in the pools too, at addresses returned by functions of the
                header, and share memory with intermediates.

        Returns:
            The written files.

        Raises:
            CodegenError: a function has parts without a form in C; all are listed.
            OptionsError: an argument has an impossible value.
            MemoryLimitError: a pool is too small; names pools, bytes needed, and the largest buffers at the peak.
            OSError: a file cannot be written.
        """
        from byoc_core.artifact.plain_c.export import export_c

        return export_c(
            self,
            folder,
            name=name,
            max_sizes=max_sizes,
            constants=constants,
            test_inputs=test_inputs,
            pools=pools,
            places_arguments=places_arguments,
        )

    def export_archive(
        self, path: str | os.PathLike[str], *, name: str = "model", max_sizes: Mapping[str, int] | None = None
    ) -> tuple[Path, ...]:
        """Write the functions as a static library, with the header ``<name>.h`` beside it.

        The library holds the compiled C of :meth:`export_c`, for the machine of the generated C.

        Args:
            path: the file, such as ``libmodel.a``.
            name: the prefix of all C names, a C identifier.
            max_sizes: as for :meth:`export_c`.

        Returns:
            The library and the header.

        Raises:
            CodegenError: a function has parts without a form in C; all are listed.
            OptionsError: an argument has an impossible value.
            ToolchainError: there is no C compiler, or the C compiler failed.
        """
        from byoc_core.artifact.plain_c.export import export_archive

        return export_archive(self, path, name=name, max_sizes=max_sizes)

    def export_wheel(self, folder: str | os.PathLike[str], *, name: str = "model", version: str = "0.1") -> Path:
        """Write a Python wheel with one function, ``<name>.run``, over numpy arrays.

        The wheel holds the compiled C of :meth:`export_c`, and needs numpy, but no package of byoc and no compiler.

        Args:
            folder: created if missing; gets ``<name>-<version>-py3-none-<platform>.whl``.
            name: the name of the package, a C identifier.
            version: the version of the package.

        Returns:
            The wheel.

        Raises:
            CodegenError: a function has parts without a form in C; all are listed.
            OptionsError: the name or the version is impossible.
            ToolchainError: there is no C compiler, or the C compiler failed.
        """
        from byoc_core.artifact.plain_c.wheel import export_wheel

        return export_wheel(self, folder, name=name, version=version)

    def __repr__(self) -> str:
        kinds = ", ".join(module.type_key for module in self.modules) or "no modules"
        return f"<executable {', '.join(self.functions)}: {kinds}>"
