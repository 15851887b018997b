"""A single compilation: the module, the request, and the participating backends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from byoc_core.backend import BackendHandle
from byoc_core.backend.contained import ContainedBackend, HookFailure
from byoc_core.backend.own_ops import with_own_ops
from byoc_core.backend.registry import HOST_NAME, Backends
from byoc_core.backend.specialised import SpecialisedBackend
from byoc_core.driver.automatic import with_all_backends
from byoc_core.driver.lock import read_placement
from byoc_core.driver.observers import Observers
from byoc_core.driver.request import AUTO, CompileRequest
from byoc_core.driver.specialising import parameter_symbols, sizes_to_compile
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionLog, RunCodegen
from byoc_core.partitioning.partition import check_module, check_option_owners

__all__ = ["Compilation", "new_compilation", "resolved_request"]


@dataclass(frozen=True)
class Compilation:
    """A single compilation.

    Attributes:
        module: the module given by the user.
        request: the user's choices.
        registry: resolves names to backends.
        backends: the participating backends; the first is asked first, the host last.
        observers: the observers of the compilation.
        log: gets the reasons for refused ops.
        failures: gets the exceptions of hooks.
    """

    module: IRModule
    request: CompileRequest
    registry: Backends
    backends: tuple[BackendHandle, ...]
    observers: Observers
    log: PartitionLog = field(default_factory=PartitionLog)
    failures: list[HookFailure] = field(default_factory=list)

    @property
    def host(self) -> BackendHandle:
        """The backend for the ops refused by all others."""
        return self.backends[-1]

    @property
    def offload_backends(self) -> tuple[BackendHandle, ...]:
        """The backends other than the host."""
        return tuple(handle for handle in self.backends if handle.name != HOST_NAME)

    def options(self, backend: BackendHandle) -> Mapping[str, object]:
        """Return the user's options for a backend."""
        return self.request.options.get(backend.name, {})

    def codegen(self) -> RunCodegen:
        """Return the pass for compilation by the participating backends."""
        return RunCodegen(options=self.request.options, backends=self.backends, registry=self.registry)


def new_compilation(module: IRModule, request: CompileRequest, registry: Backends, observers: Observers) -> Compilation:
    """Return a compilation with resolved backends and checked options.

    Raises:
        OptionsError: ``module`` is no module, an option or a size does not fit.
        BackendNotFoundError: a backend is not installed.
        PluginError: a backend cannot be used.
    """
    check_module(module)
    request = resolved_request(request, registry)
    handles = registry.order(request.backends)
    check_option_owners(request.options, [handle.name for handle in handles])
    compilation = Compilation(module, request, registry, handles, replace(observers, dump=request.dump))
    contained = handles if request.is_strict else [_contained(handle, compilation.failures) for handle in handles]
    backends = tuple(_with_symbolic_sizes(compilation, contained))
    return replace(compilation, module=with_own_ops(module, backends), backends=backends)


def resolved_request(request: CompileRequest, registry: Backends) -> CompileRequest:
    """Return a request with policy and backends in place of a lock and of ``"auto"``.

    Raises:
        OSError: the file cannot be read.
        OptionsError: the file is no lock.
        PluginError: a backend cannot be used.
    """
    if request.placement is not None:
        backends = () if request.backends == (AUTO,) else request.backends
        present = {registry.get(item).name for item in backends if not isinstance(item, str)}
        lock = read_placement(request.placement, registry, present)
        request = request.updated(placement=None, policy=lock.policy, backends=backends or lock.backends)
    return with_all_backends(request, registry)


def _contained(handle: BackendHandle, failures: list[HookFailure]) -> BackendHandle:
    return handle if handle.name == HOST_NAME else ContainedBackend(handle, failures)


def _with_symbolic_sizes(compilation: Compilation, handles: Sequence[BackendHandle]) -> Sequence[BackendHandle]:
    """Return the backends; wrap backends of static shapes to compile for each set of sizes of the user or a call."""
    request = compilation.request
    sizes = sizes_to_compile(request.specialize, compilation.module)
    if sizes is None:
        return handles
    specialised = partial(
        SpecialisedBackend,
        symbols=parameter_symbols(compilation.module),
        host=None if request.forbids_host else compilation.host,
        is_strict=request.is_strict,
    )
    return [
        handle if handle.info().dynamic_shapes else specialised(handle, sizes, compilation.options(handle))
        for handle in handles
    ]
