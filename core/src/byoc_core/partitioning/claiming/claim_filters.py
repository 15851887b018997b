"""Claim filters: conditions on requests to backends, checked before a backend's own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import HOST_NAME
from byoc_core.ir import Binding, TensorType, Trait
from byoc_core.ir.sizes import attribute_symbols, is_data_dependent
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection

__all__ = ["ClaimFilter", "accept_all", "backend_filter", "core_refusal", "join_filters", "with_refused_ops"]

ClaimFilter = Callable[[str, Binding], Rejection | None]
"""Called with the op's function in the module (by name) and the op; returns a reason against a request, or ``None``."""


def accept_all(source: str, binding: Binding) -> Rejection | None:
    """Return ``None``: the claim filter without any refusal."""
    return None


def join_filters(*claim_filters: ClaimFilter) -> ClaimFilter:
    """Return the claim filter with the refusals of several filters; the first reason counts."""
    filters = [claim_filter for claim_filter in claim_filters if claim_filter is not accept_all]
    if len(filters) < 2:
        return filters[0] if filters else accept_all

    def first_refusal(source: str, binding: Binding) -> Rejection | None:
        return next((refusal for each in filters if (refusal := each(source, binding)) is not None), None)

    return first_refusal


def backend_filter(handle: BackendHandle, *further_filters: ClaimFilter) -> ClaimFilter:
    """Return the claim filter of a backend: the core's own conditions first, then further filters, in order."""
    return join_filters(lambda _, binding: core_refusal(binding, handle), *further_filters)


def with_refused_ops(
    refused: Mapping[tuple[str, OpKey], Rejection], claim_filters: Callable[[str], ClaimFilter]
) -> Callable[[str], ClaimFilter]:
    """Return the claim filters by backend extended by refusals of ops; the original filters are asked first.

    Args:
        refused: the reasons, by backend and op; later additions count too.
        claim_filters: the original claim filters, by backend.
    """

    def extended_filter(backend: str) -> ClaimFilter:
        original = claim_filters(backend)

        def refusal(source: str, binding: Binding) -> Rejection | None:
            return original(source, binding) or refused.get((backend, op_key(source, binding)))

        return refusal

    return extended_filter


def core_refusal(binding: Binding, handle: BackendHandle) -> Rejection | None:
    """Return the core's reason against asking a backend about an op, or ``None``."""
    if binding.op.has_trait(Trait.NONDETERMINISTIC):
        if handle.name != HOST_NAME:
            return Rejection("nondeterministic", f"`{binding.op.name}` gives other results in each run")
    elif not binding.op.has_trait(Trait.PURE):
        return Rejection("impure", f"`{binding.op.name}` has effects")
    is_static = not attribute_symbols(binding.attrs)
    for value in (*binding.operands, *binding.results):
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            return Rejection("unknown-rank", "a value is not a tensor of known rank")
        is_static = is_static and not value.type.symbols
    if is_data_dependent(binding) and not handle.info().data_dependent_sizes:
        return Rejection("data-dependent-size", f"backend `{handle.name}` takes no data-dependent sizes")
    if not is_static and not handle.info().dynamic_shapes:
        return Rejection("dynamic-shape", f"backend `{handle.name}` takes static shapes only")
    return None
