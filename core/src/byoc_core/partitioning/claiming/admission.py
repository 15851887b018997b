"""Who may be asked about an op at all: conditions that come before a backend's own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.backend import BackendHandle
from byoc_core.ir import Binding, TensorType, Trait, Type
from byoc_core.ir.sizes import attribute_symbols, is_data_dependent
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection

__all__ = ["Admission", "admit_all", "core_refusal", "join_admissions", "new_admission", "without_ops"]

Admission = Callable[[str, Binding], Rejection | None]
"""Called with the name of the function of the module that an op stands in, and the op: a reason not to ask about it."""


def admit_all(source: str, binding: Binding) -> Rejection | None:
    """Gives ``None``: the admission that turns nothing away."""
    return None


def join_admissions(*admissions: Admission) -> Admission:
    """Gives the admission that turns away what any of several does; the first reason counts."""
    asked = [admission for admission in admissions if admission is not admit_all]
    if len(asked) < 2:
        return asked[0] if asked else admit_all

    def admit(source: str, binding: Binding) -> Rejection | None:
        return next((refusal for other in asked if (refusal := other(source, binding)) is not None), None)

    return admit


def new_admission(handle: BackendHandle, *others: Admission) -> Admission:
    """Gives the admission to one backend: the core's own conditions first, then the others, in order."""
    return join_admissions(lambda _, binding: core_refusal(binding, handle), *others)


def without_ops(
    refused: Mapping[tuple[str, OpKey], Rejection], admissions: Callable[[str], Admission]
) -> Callable[[str], Admission]:
    """Return the admissions by backend that turn away, after the given ones, ops that a backend may not have.

    Args:
        refused: the reasons, by backend and op; what is added later counts too.
        admissions: the others, by backend.
    """

    def admission(backend: str) -> Admission:
        others = admissions(backend)

        def admit(source: str, binding: Binding) -> Rejection | None:
            return others(source, binding) or refused.get((backend, op_key(source, binding)))

        return admit

    return admission


def core_refusal(binding: Binding, handle: BackendHandle) -> Rejection | None:
    """Gives the reason for which the core does not even ask a backend about an op, or ``None``."""
    if not binding.op.has_trait(Trait.PURE):
        return Rejection("impure", f"`{binding.op.name}` has effects")
    types = [value.type for value in (*binding.operands, *binding.results)]
    if any(not isinstance(type_, TensorType) or type_.shape is None for type_ in types):
        return Rejection("unknown-rank", "a value is no tensor of known rank")
    if is_data_dependent(binding) and not handle.info().data_dependent_sizes:
        return Rejection("data-dependent-size", f"backend `{handle.name}` takes no sizes that only the data tells")
    is_static = not any(map(_has_symbols, types)) and not attribute_symbols(binding.attrs)
    if not is_static and not handle.info().dynamic_shapes:
        return Rejection("dynamic-shape", f"backend `{handle.name}` takes static shapes only")
    return None


def _has_symbols(type_: Type) -> bool:
    return isinstance(type_, TensorType) and bool(type_.symbols)
