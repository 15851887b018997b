"""The backends ``"auto"``: all installed backends able to compile here, placed by cost."""

from __future__ import annotations

from collections.abc import Iterator

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import HOST_NAME, Backends
from byoc_core.driver.caller import warn_caller
from byoc_core.driver.request import AUTO, CompileRequest
from byoc_core.errors import OptionsError, PluginError
from byoc_core.measurements import Measurements
from byoc_core.measurements.setting import find_calibrations
from byoc_core.partitioning import ByCost, MachineModel

__all__ = ["able_backends", "compiling_backends", "with_all_backends"]

_UNMEASURED = MachineModel(flops_per_second=1e10, bytes_per_second=4e9, op_seconds=1e-6, call_seconds=2e-6)
"""A backend without own estimates, beside backends with measured estimates: unknown speed is no reason to choose it."""


def able_backends(registry: Backends) -> Iterator[BackendHandle]:
    """Yield the installed backends able to compile on this machine, by name, without the host.

    A backend unable to start is left out: nobody asked for the backend by name. ``byoc backends`` lists the reason.
    """
    for name in registry.names():
        try:
            handle = registry.get(name)
            is_able = name != HOST_NAME and handle.compile_status().ok
        except PluginError:
            continue
        if is_able:
            yield handle


def compiling_backends(request: CompileRequest, registry: Backends, where: str) -> list[BackendHandle]:
    """Return the backends of a request able to compile here, by default all installed backends, without the host.

    Args:
        request: the choices of the compilation.
        registry: the installed backends.
        where: the place for errors.

    Raises:
        OptionsError: no backend is able to compile here.
    """
    candidates = request.backends if request.backends != (AUTO,) else [*able_backends(registry)]
    handles = [
        handle
        for handle in registry.order(candidates)
        if handle.name != HOST_NAME
        and handle.compile_status(handle.context(None, request.options.get(handle.name, {}))).ok
    ]
    if not handles:
        raise OptionsError(where, "no backend can compile here", hint="`byoc doctor` lists the reasons.")
    return handles


def with_all_backends(request: CompileRequest, registry: Backends) -> CompileRequest:
    """Return a request with the able backends in place of ``"auto"``, and by default the policy by cost.

    The policy reads the user's database of measured ops, if there is one.
    """
    if request.backends != (AUTO,):
        return request
    handles = [*able_backends(registry)]
    if not handles and {*registry.names()} - {HOST_NAME}:
        warn_caller("no installed backend can compile here, so the host takes all ops: see `byoc doctor`.")
    names = [handle.name for handle in handles]
    if request.policy is not None or len(handles) < 2:
        return request.updated(backends=names)
    measurements = Measurements()
    without_estimates = [handle for handle in handles if not handle.implements("byoc_estimate")]
    calibrated = find_calibrations(measurements, without_estimates, request.options)
    machines = {handle.name: _UNMEASURED for handle in without_estimates if handle.name not in calibrated}
    return request.updated(backends=names, policy=ByCost(machines=machines, measurements=measurements))
