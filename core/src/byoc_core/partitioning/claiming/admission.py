"""Admission: conditions on requests to backends, checked before a backend's own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from byoc_core.backend import BackendHandle
from byoc_core.ir import Binding, TensorType, Trait, Type
from byoc_core.ir.sizes import attribute_symbols, is_data_dependent
from byoc_core.partitioning.op_sites import OpKey, op_key
from byoc_core.pattern import Rejection

__all__ = ["Admission", "admit_all", "core_refusal", "join_admissions", "new_admission", "without_ops"]

Admission = Callable[[str, Binding], Rejection | None]
"""Called with the op's function in the module (by name) and the op; returns a reason against a request, or ``None``."""


def admit_all(source: str, binding: Binding) -> Rejection | None:
    """Return ``None``: the admission without any refusal."""
    return None


def join_admissions(*admissions: Admission) -> Admission:
    """Return the admission with the refusals of several admissions; the first reason counts."""
    asked = [admission for admission in admissions if admission is not admit_all]
    if len(asked) < 2:
        return asked[0] if asked else admit_all

    def admit(source: str, binding: Binding) -> Rejection | None:
        return next((refusal for other in asked if (refusal := other(source, binding)) is not None), None)

    return admit


def new_admission(handle: BackendHandle, *others: Admission) -> Admission:
    """Return the admission to one backend: the core's own conditions first, then the others, in order."""
    return join_admissions(lambda _, binding: core_refusal(binding, handle), *others)


def without_ops(
    refused: Mapping[tuple[str, OpKey], Rejection], admissions: Callable[[str], Admission]
) -> Callable[[str], Admission]:
    """Return the admissions by backend extended by refusals of ops; the given admissions are asked first.

    Args:
        refused: the reasons, by backend and op; later additions count too.
        admissions: the given admissions, by backend.
    """

    def admission(backend: str) -> Admission:
        others = admissions(backend)

        def admit(source: str, binding: Binding) -> Rejection | None:
            return others(source, binding) or refused.get((backend, op_key(source, binding)))

        return admit

    return admission


def core_refusal(binding: Binding, handle: BackendHandle) -> Rejection | None:
    """Return the core's reason against asking a backend about an op, or ``None``."""
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
