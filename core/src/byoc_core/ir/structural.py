"""Structural ops: calls, control flow and composites. They have no kernel: passes and the VM define their meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from byoc_core.dims import Dim, DimExpr, substitute
from byoc_core.ir.module import Binding, Function
from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec, Trait
from byoc_core.opset.types import TensorType, Type

__all__ = [
    "CALL",
    "CALL_DPS_PACKED",
    "CALL_PACKED",
    "COMPOSITE",
    "IF",
    "LOOP",
    "STRUCTURAL_OPS",
    "bind_param_types",
    "has_effect",
    "is_pure",
]


def is_pure(binding: Binding, functions: Mapping[str, Function]) -> bool:
    """Return whether a binding may be removed, repeated and moved, because nothing executed has an effect.

    Cost: linear in the contained and called ops; each called function is visited once.
    """
    return _all_executed(binding, functions, lambda op: Trait.PURE in op.traits)


def has_effect(binding: Binding, functions: Mapping[str, Function]) -> bool:
    """Return whether a run of a binding is observable beyond the results: a binding with an effect is never removed.

    A binding without an effect is pure or nondeterministic.

    Cost: linear in the contained and called ops; each called function is visited once.
    """
    return not _all_executed(
        binding, functions, lambda op: Trait.PURE in op.traits or Trait.NONDETERMINISTIC in op.traits
    )


def _all_executed(binding: Binding, functions: Mapping[str, Function], is_accepted: Callable[[OpDef], bool]) -> bool:
    """Return whether all executed ops are accepted, external calls if declared pure; unknown callees are not."""
    pending, seen = [binding], set[str]()
    while pending:
        current = pending.pop()
        if current.op is CALL:
            callee = str(current.attrs["callee"])
            if callee not in functions:
                return False
            if callee not in seen:
                seen.add(callee)
                pending.extend(functions[callee].bindings)
        elif not (current.attrs["pure"] if current.op is CALL_PACKED else is_accepted(current.op)):
            return False
        pending.extend(inner for region in current.regions for inner in region.bindings)
    return True


def bind_param_types(function: Function, context: TypeContext) -> dict[str, Dim]:
    """Match operand types with a function's parameter types.

    Returns:
        The value of each symbol of the parameters in the caller.

    Raises:
        IRTypeError: wrong count, or a parameter and the operand differ; names both and the axis.
    """
    if len(function.params) != len(context.operands):
        raise context.error(f"`{function.name}` takes {len(function.params)} arguments", got=len(context.operands))
    symbols: dict[str, Dim] = {}
    for param, type_ in zip(function.params, context.operands, strict=True):
        if isinstance(param.type, TensorType) and isinstance(type_, TensorType):
            _bind_bare_symbols(param.type, type_, symbols)
    for param, type_ in zip(function.params, context.operands, strict=True):
        _check_argument(function, param.name, param.type, type_, symbols, context)
    return symbols


def _bind_bare_symbols(param: TensorType, argument: TensorType, symbols: dict[str, Dim]) -> None:
    if param.shape is None or argument.shape is None or len(param.shape) != len(argument.shape):
        return
    for dim, size in zip(param.shape, argument.shape, strict=True):
        if isinstance(dim, DimExpr) and str(dim).isidentifier():
            symbols.setdefault(str(dim), size)


def _check_argument(
    function: Function, name: str, param: Type, argument: Type, symbols: Mapping[str, Dim], context: TypeContext
) -> None:
    where = f"argument `{name}` of `{function.name}`"
    if not isinstance(param, TensorType) or not isinstance(argument, TensorType):
        if param != argument:
            raise context.error(f"{where} has another type", got=argument, expected=param)
        return
    if param.shape is None:
        if param.dtype != argument.dtype:
            raise context.error(f"{where} has another dtype", got=argument.dtype, expected=param.dtype)
        return
    expected = param.substitute(symbols)
    if expected == argument:
        return
    if argument.shape is not None and len(argument.shape) == len(param.shape) and param.dtype == argument.dtype:
        for axis, (want, have) in enumerate(zip(expected.shape or (), argument.shape, strict=True)):
            if want != have:
                raise context.error(f"{where} has another size on axis {axis}", got=argument, expected=expected)
    raise context.error(f"{where} has another type", got=argument, expected=expected)


def _infer_call(context: TypeContext) -> tuple[Type, ...]:
    callee: Function | None = context.callee
    if callee is None:
        raise context.error(f"function `{context.attrs['callee']}` is not in the module")
    symbols = bind_param_types(callee, context)
    return tuple(_substituted(type_, symbols) for type_ in callee.result_types)


def _substituted(type_: Type, symbols: Mapping[str, Dim]) -> Type:
    if isinstance(type_, TensorType) and type_.shape is not None:
        return TensorType(tuple(substitute(dim, symbols) for dim in type_.shape), type_.dtype)
    return type_


def _infer_declared(context: TypeContext) -> tuple[Type, ...]:
    if not context.declared:
        raise context.error("needs its result types (`out_types=`)")
    operand_symbols = frozenset[str]().union(*(t.symbols for t in context.operands if isinstance(t, TensorType)))
    for type_ in context.declared:
        if isinstance(type_, TensorType) and type_.shape is None:
            raise context.error("needs result types of known rank", got=type_)
        if isinstance(type_, TensorType) and context.op == "call_dps_packed" and not type_.symbols <= operand_symbols:
            raise context.error(
                "has a result with a size determined by no operand",
                got=type_,
                expected=f"symbols among {', '.join(sorted(operand_symbols)) or 'none'}",
            )
    return context.declared


def _check_region_params(
    context: TypeContext, region: Function, types: tuple[Type, ...], last_types: Sequence[Type] = ()
) -> None:
    """Check the parameters of a region; ``last_types`` replace the types of the last parameters."""
    if len(region.params) != len(types):
        raise context.error(f"region `{region.name}` takes {len(region.params)} values", got=len(types))
    params = [param.type for param in region.params]
    params[len(params) - len(last_types) :] = last_types
    for param, expected, type_ in zip(region.params, params, types, strict=True):
        if expected != type_:
            raise context.error(
                f"parameter `{param.name}` of region `{region.name}` has another type", got=type_, expected=expected
            )


def _infer_composite(context: TypeContext) -> tuple[Type, ...]:
    body: Function = context.regions[0]
    _check_region_params(context, body, context.operands)
    if not body.results:
        raise context.error(f"region `{body.name}` has no result")
    return body.result_types


def _check_scalar(context: TypeContext, type_: Type, dtype: str, label: str) -> None:
    if type_ != TensorType((), dtype):
        raise context.error(f"{label} is not a scalar of the right dtype", got=type_, expected=TensorType((), dtype))


def _infer_if(context: TypeContext) -> tuple[Type, ...]:
    then_region: Function = context.regions[0]
    else_region: Function = context.regions[1]
    _check_scalar(context, context.operands[0], "bool", "the condition")
    for region in context.regions:
        _check_region_params(context, region, context.operands[1:])
    if then_region.result_types != else_region.result_types:
        raise context.error(
            "branches have different result types",
            got=", ".join(map(str, else_region.result_types)),
            expected=", ".join(map(str, then_region.result_types)),
        )
    return then_region.result_types


def _infer_loop(context: TypeContext) -> tuple[Type, ...]:
    body: Function = context.regions[0]
    _check_scalar(context, context.operands[0], "int64", "the trip count")
    _check_scalar(context, context.operands[1], "bool", "the condition")
    carried = context.operands[2:]
    types = tuple(param.type for param in body.params[1:])
    changing = _symbols_of(types) - _symbols_of(carried)
    _check_region_params(context, body, (TensorType((), "int64"), *carried), _of_round(types, carried, changing))
    expected: tuple[Type, ...] = (TensorType((), "bool"), *_of_round(types, body.result_types[1:], changing))
    if body.result_types != expected:
        raise context.error(
            f"region `{body.name}` does not return the condition and the carried values",
            got=", ".join(map(str, body.result_types)),
            expected=", ".join(map(str, expected)),
        )
    return types


def _symbols_of(types: Iterable[Type]) -> frozenset[str]:
    return frozenset[str]().union(*(type_.symbols for type_ in types if isinstance(type_, TensorType)))


def _of_round(params: Sequence[Type], values: Sequence[Type], changing: frozenset[str]) -> tuple[Type, ...]:
    """Return the types of a loop's parameters in a round started with values of other types.

    Args:
        params: the types of the parameters for carried values.
        values: the types of the values.
        changing: the symbols of sizes changing from round to round; an axis of such a size gives the size in the round.
    """
    sizes: dict[str, Dim] = {}
    for param, value in zip(params, values, strict=False):
        if isinstance(param, TensorType) and isinstance(value, TensorType):
            _bind_bare_symbols(param, value, sizes)
    sizes = {name: size for name, size in sizes.items() if name in changing}
    return tuple(_substituted(param, sizes) for param in params)


CALL = OpDef(
    "call",
    (OperandSpec("arguments", variadic=True),),
    _infer_call,
    (AttrSpec("callee", AttrKind.STR, REQUIRED, doc="A function of the module."),),
    flops=no_flops,
    doc="Call a function of the module, with the operands as arguments. Printed `callee(a, b)`.",
)

CALL_DPS_PACKED = OpDef(
    "call_dps_packed",
    (OperandSpec("arguments", variadic=True),),
    _infer_declared,
    (
        AttrSpec("symbol", AttrKind.STR, REQUIRED, doc="The external function."),
        AttrSpec(
            "device",
            AttrKind.INT,
            default=0,
            doc="The number of the device running the function, among the devices of the function's memory domain; "
            "without meaning for a function of the host's memory.",
        ),
    ),
    declares_results=True,
    leading_attr="symbol",
    flops=no_flops,
    doc="Call an external function in destination-passing style: the runtime allocates the results, calls "
    "`symbol(*arguments, *results)` and ignores the returned value. Pure.",
)

CALL_PACKED = OpDef(
    "call_packed",
    (OperandSpec("arguments", variadic=True),),
    _infer_declared,
    (
        AttrSpec("symbol", AttrKind.STR, REQUIRED, doc="The external function."),
        AttrSpec("pure", AttrKind.BOOL, default=False, doc="Whether the call has no effect."),
    ),
    traits=frozenset(),
    declares_results=True,
    leading_attr="symbol",
    flops=no_flops,
    doc="Call an external function returning the results. Unless `pure`, the call is never removed, repeated or moved.",
)

COMPOSITE = OpDef(
    "composite",
    (OperandSpec("inputs", variadic=True),),
    _infer_composite,
    (
        AttrSpec("name", AttrKind.STR, REQUIRED, doc="`<backend>.<what>`."),
        AttrSpec("pattern", AttrKind.STR, "", doc="The ops inside in match order, each followed by an underscore."),
    ),
    num_regions=1,
    leading_attr="name",
    flops=no_flops,
    doc="Ops computed as a single op by a backend; the region holds the ops and takes the operands as parameters.",
)

IF = OpDef(
    "if",
    (OperandSpec("condition"), OperandSpec("inputs", variadic=True)),
    _infer_if,
    num_regions=2,
    flops=no_flops,
    doc="Run the first region if the bool scalar `condition` is true, else the second; both regions take the inputs.",
)

LOOP = OpDef(
    "loop",
    (OperandSpec("max_trip"), OperandSpec("condition"), OperandSpec("carried", variadic=True)),
    _infer_loop,
    num_regions=1,
    flops=no_flops,
    doc="While `condition` holds and fewer than `max_trip` (int64) rounds ran, run `condition, *carried = body(round, "
    "*carried)`. Return the carried values. A carried value may change sizes from round to round: the body's parameter "
    "has a new symbol in place of such a size, and the result has the same symbol, for the size after the last round.",
)

STRUCTURAL_OPS = (CALL, CALL_DPS_PACKED, CALL_PACKED, COMPOSITE, IF, LOOP)
"""All structural ops, part of every op registry."""
