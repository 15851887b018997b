"""One call for users: claims by a policy, then regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.backend import backends as installed_backends
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import IRModule
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.merge import MergeCompositeFunctions
from byoc_core.partitioning.near_misses import log_near_misses
from byoc_core.partitioning.policies import GreedyByOrder, Policy
from byoc_core.partitioning.request import PartitionRequest
from byoc_core.transform import Sequential, UniqueNames

__all__ = ["check_option_owners", "partition", "partition_pipeline"]


def partition(
    module: IRModule,
    backends: Sequence[str | object],
    *,
    policy: Policy | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    log: PartitionLog | None = None,
) -> IRModule:
    """Carves out the regions that backends claim.

    Args:
        module: what to partition; functions annotated already stay as they are.
        backends: names, plugin objects or handles, from the first to be asked to the last.
        policy: who takes what; greedy by order by default.
        options: each backend's options, by backend name.
        log: gets the refusals.

    Returns:
        The module with a function for every region, annotated with ``Codegen`` and ``global_symbol``. Ops that nobody
        claimed stay where they are.

    Raises:
        BackendNotFoundError: a backend is not installed.
        OptionsError: options for a backend that is not listed, or not its options.
        HookError: a backend's hook failed.
        InternalError: the result is not the same program.
    """
    return partition_pipeline(backends, policy=policy, options=options, log=log)(module)


def partition_pipeline(
    backends: Sequence[str | object],
    *,
    policy: Policy | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    log: PartitionLog | None = None,
    verify_input: bool = True,
) -> Sequential:
    """Gives the passes of :func:`partition`, which has the meaning of all arguments but the last.

    Args:
        backends: names, plugin objects or handles.
        policy: who takes what.
        options: each backend's options.
        log: gets the refusals.
        verify_input: ``False`` where the module has been verified already.
    """
    handles = [installed_backends().get(backend) for backend in backends]
    check_option_owners(options or {}, [handle.name for handle in handles])
    request = PartitionRequest(handles, options or {}, log if log is not None else PartitionLog())
    chosen: Policy = policy if policy is not None else GreedyByOrder()

    def claim(given: IRModule) -> IRModule:
        claimed = chosen(given, request)
        if log is not None:
            log_near_misses(given, claimed, handles, log)
        return claimed

    return Sequential([UniqueNames(), claim, MergeCompositeFunctions()], verify_input=verify_input)


def check_option_owners(options: Mapping[str, object], names: Sequence[str]) -> None:
    """Checks that options are given for backends that take part.

    Raises:
        OptionsError: a name is not among them.
    """
    for name in options:
        if name not in names:
            raise OptionsError(
                f"options for `{name}`",
                "no such backend takes part",
                expected=", ".join(names) or "none",
                hint=near_names(name, names) or None,
            )
