"""Ops between values with permuted axes, in the orders stated by the backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from byoc_core.backend.hooks import CompileContext
from byoc_core.ir import COMPOSITE, Binding, Constant, Function, OpDef, TensorType, Trait, Value, Var, infer_results
from byoc_core.transform import rank_of

from byoc_conformance.core_ops import core_op_names
from byoc_conformance.outcome import Outcome
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l2_numerics.judged_trials import inverse
from byoc_conformance.promises.l2_numerics.region_forms import (
    ClaimedOp,
    RegionForm,
    hold_forms,
    require_hook,
    thin_out,
)
from byoc_conformance.subject import Subject

__all__ = ["PROMISES"]

_UNSTATED = " between values with channels last, without a statement"

_MAX_FORMS = 4
_MAX_UNSTATED = 2
"""The numbers of forms of an op with and without a statement."""


def _compute_permuted(subject: Subject, case: str) -> Outcome:
    require_hook(subject, "byoc_layouts")
    missing = "no order of axes is stated for the claimed cases, and the op depends on the order"
    duty = "a backend with `byoc_layouts` compiles `permute_dims` at the borders of its regions"
    return hold_forms(subject, case, partial(_forms, subject), missing=missing, duty=duty)


def _forms(subject: Subject, claimed: Sequence[ClaimedOp], context: CompileContext) -> Sequence[RegionForm]:
    forms = [form for op in claimed for form in _forms_of_op(subject, op, context)]
    return thin_out(forms, _MAX_UNSTATED if all(_UNSTATED in form.label for form in forms) else _MAX_FORMS)


def _forms_of_op(subject: Subject, claimed: ClaimedOp, context: CompileContext) -> Iterator[RegionForm]:
    binding = claimed.binding
    if binding.op is COMPOSITE:
        return
    permute_dims = subject.ops["permute_dims"]
    alternatives = subject.handle.layouts(claimed.question, context)
    if alternatives is None:
        orders = _channels_last(binding)
        if orders:
            yield _permute_borders(claimed, orders, permute_dims, _UNSTATED)
        return
    for alternative in alternatives:
        pairs = [
            *zip(binding.operands, alternative.operands, strict=True),
            *zip(binding.results, alternative.results, strict=True),
        ]
        orders = {id(value): order for value, order in pairs if order is not None and not isinstance(value, Constant)}
        if orders:
            label = f" between values in the stated orders {_text(alternative.operands, alternative.results)}"
            yield _permute_borders(claimed, orders, permute_dims, label)


def _text(operands: Sequence[object], results: Sequence[object]) -> str:
    before, after = (
        ", ".join("row-major" if order is None else str(order) for order in o) for o in (operands, results)
    )
    return f"{before} -> {after}"


def _channels_last(binding: Binding) -> Mapping[int, tuple[int, ...]]:
    """Return orders with channels last for the values of an op computing in any order; empty for other ops."""
    if binding.op.has_trait(Trait.ELEMENTWISE):
        rank, positions, keeps_axes = _elementwise(binding)
    else:
        found = None if binding.op.permute is None else binding.op.permute(binding.context())
        if found is None:
            return {}
        rank, positions, keeps_axes = found.rank, found.operands, not found.dropped
    operands = [binding.operands[position] for position in positions]
    permuted: list[Value] = [value for value in operands if not isinstance(value, Constant) and rank_of(value) == rank]
    if rank < 2 or not permuted:
        return {}
    order = (0, *range(2, rank), 1) if rank > 2 else (1, 0)
    results = binding.results if keeps_axes else ()
    return {id(value): order for value in (*permuted, *results)}


def _elementwise(binding: Binding) -> tuple[int, Sequence[int], bool]:
    """Return the number of axes and the operands with these axes; no operands if the axes differ."""
    type_ = binding.results[0].type
    rank = (type_.rank if isinstance(type_, TensorType) else None) or 0
    ranks = [0 if isinstance(operand, Constant) else rank_of(operand) for operand in binding.operands]
    positions = [index for index, found in enumerate(ranks) if found == rank]
    return rank, positions if all(found in {0, rank} for found in ranks) else (), True


def _permute_borders(
    claimed: ClaimedOp, orders: Mapping[int, tuple[int, ...]], permute_dims: OpDef, label: str
) -> RegionForm:
    """Return the op between permuted values: each is permuted back on entering the region, or permuted on leaving.

    Args:
        claimed: the op.
        orders: the orders of parameters and results of the region, by ``id``; other values are not permuted.
        permute_dims: the op.
        label: a text behind the trial in messages.
    """
    region, stored = _permute_region(claimed.region, orders, permute_dims)
    caller, (call,) = claimed.caller, claimed.caller.bindings
    inner = {
        **{id(outer): id(value) for outer, value in zip(call.operands, claimed.region.params, strict=True)},
        **{id(outer): id(value) for outer, value in zip(call.results, claimed.region.results, strict=True)},
    }
    permuted = {
        id(value): Var(value.name, stored[inner[id(value)]].type)
        for value in (*caller.params, *call.results)
        if inner.get(id(value)) in stored
    }
    call = replace(
        call,
        operands=tuple(permuted.get(id(value), value) for value in call.operands),
        results=tuple(permuted.get(id(value), value) for value in call.results),
    )
    params = tuple(permuted.get(id(param), param) for param in caller.params)
    results = tuple(permuted.get(id(value), value) for value in caller.results)
    return RegionForm(
        claimed,
        label,
        replace(caller, params=params, bindings=(call,), results=results),
        region,
        [orders.get(inner.get(id(param), 0)) for param in caller.params],
        [orders.get(inner.get(id(value), 0)) for value in caller.results],
    )


def _permute_region(
    region: Function, orders: Mapping[int, tuple[int, ...]], permute_dims: OpDef
) -> tuple[Function, Mapping[int, Var]]:
    """Return the region with permuted parameters and results, and these, by the ``id`` of the value not permuted."""
    attrs = {key: permute_dims.normalise_attrs({"axes": order}) for key, order in orders.items()}
    stored = {
        id(value): Var(f"{value.name}_stored", infer_results(permute_dims, (value,), attrs[id(value)])[0])
        for value in (*region.params, *region.results)
        if isinstance(value, Var) and id(value) in orders
    }
    front = [
        Binding((param,), permute_dims, (stored[id(param)],), permute_dims.normalise_attrs({"axes": inverse(order)}))
        for param in region.params
        if (order := orders.get(id(param))) is not None
    ]
    behind = [
        Binding((stored[id(value)],), permute_dims, (value,), attrs[id(value)])
        for value in region.results
        if id(value) in stored
    ]
    params = tuple(stored.get(id(param), param) for param in region.params)
    results = tuple(stored.get(id(value), value) for value in region.results)
    return replace(region, params=params, bindings=(*front, *region.bindings, *behind), results=results), stored


PROMISES = (
    Promise(
        Level.L2,
        "layouts",
        "computes an op between values with permuted axes: in the orders stated by `byoc_layouts`, and with channels "
        "last if the op is independent of the order",
        _compute_permuted,
        cases=core_op_names,
        deadline=120.0,
    ),
)
