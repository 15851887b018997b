"""The legality checker: a proof that a partitioned module is the same program as before.

The checker shares no code with the merger: dependences, effects, and the ops between impure ops are found anew here, by
other means. Common to both is only the IR itself: the data, the verifier, and the symbols cited and given by a type.
The merger passes sizes into bodies (``CaptureSizes``) before merging; ``before`` is the module after this step.

Both modules are unfolded to value numbers (:mod:`byoc_core.partitioning.checking.unfolding`), and the laws are compared
directly:

- the module keeps functions and attributes, and each function keeps interface and attributes; a function annotated
  already stays unchanged;
- every function returns the same values, and runs the same impure ops in the same order;
- each op stands in a single place: both modules contain the same ops the same number of times, in the same bodies,
  between the same impure ops; if the module before has claims, each claimed op stands in a region of the claiming
  backend, and no other op does;
- the new module is in SSA order (checked by the verifier); this requires convex and acyclic regions;
- a region is called once, by a function and not by a region; a region contains no impure op, claim, call or control
  flow. The inputs are no constants, distinct and all read, in order of first read (or give a symbolic size not given by
  the inputs read). The outputs are results of ops of the region, in op order, distinct and all read (or have a size
  given by no input). An op with sizes known only from the data is a region alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import (
    CALL,
    IF,
    LOOP,
    Binding,
    Constant,
    Function,
    IRModule,
    Trait,
    Value,
    binding_window,
    verify,
)
from byoc_core.ir.printer import EXTERNAL_MODULES
from byoc_core.ir.sizes import given_symbols, type_symbols
from byoc_core.partitioning.checking.unfolding import Occurrence, Unfolded, Unfolder, impure_functions, walk

__all__ = ["check_partition"]


def check_partition(before: IRModule, after: IRModule) -> None:
    """Check that partitioning changed the places of ops and nothing else.

    Args:
        before: if this module has claims, ``after`` must have made regions of exactly these claims; without claims, any
            backend may have taken any op.
        after: the partitioned module.

    Raises:
        InternalError: a law is broken; shows the law, the function and the IR around the first op breaking the law.

    Cost: linear in the ops of both modules.
    """
    try:
        verify(after)
    except VerifyError as error:
        raise InternalError("partition", f"made an invalid module: {error}") from error
    _check_module(before, after)
    regions = {name: function for name, function in after.functions.items() if name not in before.functions}
    _check_contents(regions, after)
    is_claimed = any(binding.codegen is not None for binding in _open_bindings(before))
    numbers: dict[object, int] = {}
    old = Unfolder(before, numbers, (), _claim_before if is_claimed else _no_claim)
    new = Unfolder(after, numbers, regions, _claim_after if is_claimed else _no_claim)
    for name, function in before.functions.items():
        if "Codegen" not in function.attrs:
            _compare(name, _Side(before, old), _Side(after, new))
    _check_interfaces(regions, after)


def _open_bindings(module: IRModule) -> Iterator[Binding]:
    """Yield the bindings of all functions open to changes by partitioning."""
    return walk(*(function for function in module.functions.values() if "Codegen" not in function.attrs))


def _no_claim(binding: Binding, body: Function | None) -> str | None:
    return None


def _claim_before(binding: Binding, body: Function | None) -> str | None:
    return binding.codegen


def _claim_after(binding: Binding, body: Function | None) -> str | None:
    return str(body.attrs["Codegen"]) if body is not None and binding.op is CALL else None


def _check_module(before: IRModule, after: IRModule) -> None:
    """Check that module and functions keep their interfaces and attributes."""
    if dict(before.attrs) != dict(after.attrs):
        got, expected = ", ".join(after.attrs) or "none", ", ".join(before.attrs) or "none"
        raise InternalError("partition", "changed the attributes of the module", got=got, expected=expected)
    for name, old in before.functions.items():
        if name not in after.functions:
            raise InternalError("partition", f"lost function `{name}`", detail=_head(old, before))
        new = after.functions[name]
        if "Codegen" in old.attrs and new != old:
            problem = f"changed the annotated function `{name}`"
            raise InternalError("partition", problem, detail=_head(new, after))
        for subject, was, now in (
            ("attributes", dict(old.attrs), dict(new.attrs)),
            ("parameters", [str(param.type) for param in old.params], [str(param.type) for param in new.params]),
            ("names of the inputs", old.input_names, new.input_names),
            ("names of the outputs", old.output_names, new.output_names),
            ("result types", list(map(str, old.result_types)), list(map(str, new.result_types))),
        ):
            if was != now:
                problem = f"changed the {subject} of function `{name}`"
                raise InternalError("partition", problem, got=now, expected=was, detail=_head(new, after))


def _head(function: Function, module: IRModule) -> str:
    return binding_window(function, None, module.constants)


def _window(binding: Binding, module: IRModule) -> str:
    """Return the lines around a binding, at any place in the module."""
    owner = next(function for function in module.functions.values() if any(b is binding for b in walk(function)))
    return binding_window(owner, binding, module.constants)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two compared modules."""

    module: IRModule
    unfolder: Unfolder


def _compare(name: str, before: _Side, after: _Side) -> None:
    expected = before.unfolder.unfold(before.module.functions[name])
    actual = after.unfolder.unfold(after.module.functions[name])
    law = _broken_law(expected, actual)
    if law is not None:
        detail = _first_difference(name, expected, actual, before, after)
        raise InternalError("partition", f"changed {law} of function `{name}`", detail=detail)


def _broken_law(expected: Unfolded, actual: Unfolded) -> str | None:
    if expected.results != actual.results:
        return "the results"
    if expected.impure != actual.impure:
        return "the impure ops or the order of impure ops"
    if Counter(expected.ops) == Counter(actual.ops):
        return None
    if Counter(op[0] for op in expected.ops) != Counter(op[0] for op in actual.ops):
        return "the ops, or the number of runs of an op,"
    return "the backend of an op, or the impure ops around an op,"


def _first_difference(name: str, expected: Unfolded, actual: Unfolded, before: _Side, after: _Side) -> str:
    """Return the IR around the first op missing on the other side, for each side and in the innermost body.

    Without such an op, the producers of the first differing result are shown, or else the head of the new function.
    """
    lost, added = _first_extra(expected, actual), _first_extra(actual, expected)
    while lost is not None and added is not None and lost.regions and len(lost.regions) == len(added.regions):
        for old, new in zip(lost.regions, added.regions, strict=True):
            inner_expected, inner_actual = before.unfolder.body(old), after.unfolder.body(new)
            inner = _first_extra(inner_expected, inner_actual), _first_extra(inner_actual, inner_expected)
            if inner != (None, None):
                lost, added = inner
                break
        else:
            break
    if lost is None and added is None:
        lost, added = _first_wrong_result(name, expected, actual, before, after)
    shown = []
    for title, binding, side in (("before", lost, before), ("after", added, after)):
        if binding is not None:
            shown.append(f"{title}:\n{_window(binding, side.module)}")
    return "\n".join(shown) or _head(after.module.functions[name], after.module)


def _first_extra(actual: Unfolded, expected: Unfolded) -> Binding | None:
    """Return the first op running more often than wanted."""
    left: Counter[Occurrence] = Counter(expected.ops)
    for op, binding in zip(actual.ops, actual.bindings, strict=True):
        left[op] -= 1
        if left[op] < 0:
            return binding
    return None


def _first_wrong_result(
    name: str, expected: Unfolded, actual: Unfolded, before: _Side, after: _Side
) -> tuple[Binding | None, Binding | None]:
    """Return the producer of the first differing result, on each side; ``None`` for an input or a constant."""
    pairs = enumerate(zip(expected.results, actual.results, strict=True))
    index = next((index for index, (old, new) in pairs if old != new), None)
    if index is None:
        return None, None
    old, new = (_producer(side.module.functions[name], index) for side in (before, after))
    return old, new


def _producer(function: Function, index: int) -> Binding | None:
    value = function.results[index]
    return next((b for b in function.bindings if any(result is value for result in b.results)), None)


def _check_contents(regions: Mapping[str, Function], module: IRModule) -> None:
    """Check the laws of new functions required by unfolding."""
    impure = impure_functions(module)
    external = {symbol for item in module.attrs.get(EXTERNAL_MODULES, ()) for symbol in item.function_names}
    external.update(str(b.attrs["symbol"]) for b in walk(*module.functions.values()) if "symbol" in b.attrs)
    for name, region in regions.items():
        symbol = region.attrs.get("global_symbol")
        if not isinstance(region.attrs.get("Codegen"), str) or not isinstance(symbol, str):
            raise InternalError(
                f"function `{name}`", "is new and not annotated for a backend", detail=_head(region, module)
            )
        if symbol in external:
            conflict = f"has the global symbol of an external function, `{symbol}`"
            raise InternalError(f"region `{name}`", conflict, detail=_head(region, module))
        for binding in walk(region):
            problem = _forbidden_reason(binding)
            if problem is not None:
                raise InternalError(f"region `{name}`", problem, detail=_window(binding, module))
        if name in impure and not _draws_alone(region):
            raise InternalError(f"region `{name}`", "contains an impure op", detail=_head(region, module))


def _draws_alone(region: Function) -> bool:
    """Return whether a region is a single nondeterministic op: impure ops share no region."""
    bindings = list(walk(region))
    return len(bindings) == 1 and Trait.NONDETERMINISTIC in bindings[0].op.traits


def _forbidden_reason(binding: Binding) -> str | None:
    """Return the reason against a binding in a region, if any."""
    if binding.op in (CALL, IF, LOOP):
        return f"contains `{binding.op.name}`, forbidden in regions"
    return f"contains an op with a claim of `{binding.codegen}`" if binding.codegen is not None else None


def _check_interfaces(regions: Mapping[str, Function], module: IRModule) -> None:
    uses: dict[str, list[_Use]] = {name: [] for name in regions}
    pending = [function for name, function in module.functions.items() if name not in regions]
    while pending:
        _collect_uses(pending.pop(), uses, pending)
    for name, region in regions.items():
        problem = _interface_problem(region, uses[name])
        if problem is not None:
            raise InternalError(f"region `{name}`", problem, detail=_head(region, module))


@dataclass(frozen=True, slots=True)
class _Use:
    """A call: the operands, and for each result whether it is read."""

    operands: tuple[Value, ...]
    is_read: tuple[bool, ...]


def _collect_uses(function: Function, uses: Mapping[str, list[_Use]], bodies: list[Function]) -> None:
    """Add the calls of regions in a function to ``uses``, and the nested functions to ``bodies``."""
    read = set(_read_ids(function))
    for binding in function.bindings:
        bodies.extend(binding.regions)
        if binding.op is CALL and binding.attrs["callee"] in uses:
            use = _Use(binding.operands, tuple(id(result) in read for result in binding.results))
            uses[str(binding.attrs["callee"])].append(use)


def _read_ids(function: Function) -> dict[int, None]:
    """Return the values read by a function, by ``id`` and in the order of the first read."""
    read = dict.fromkeys(id(operand) for binding in function.bindings for operand in binding.operands)
    return read | dict.fromkeys(map(id, function.results))


def _interface_problem(region: Function, uses: Sequence[_Use]) -> str | None:
    if len(uses) != 1:
        return f"is called {len(uses)} times, not once"
    operands, is_read = uses[0].operands, uses[0].is_read
    if any(isinstance(operand, Constant) for operand in operands):
        return "has a constant as input"
    if len(set(map(id, operands))) != len(operands):
        return "has a duplicate input"
    if len(set(map(id, region.results))) != len(region.results):
        return "has a duplicate output"
    if len(list(walk(region))) > 1 and any(Trait.DATA_DEPENDENT in b.op.traits for b in walk(region)):
        return "contains other ops beside an op with data-dependent sizes"
    return _input_problem(region) or _output_problem(region, is_read)


def _input_problem(region: Function) -> str | None:
    params = {id(param): param for param in region.params}
    used = {read: params[read] for read in _read_ids(region) if read in params}
    known_symbols = frozenset[str]().union(*(given_symbols(param.type) for param in used.values()))
    for param in region.params:
        if id(param) not in used and given_symbols(param.type) <= known_symbols:
            return f"does not read the input `{param.name}`"
    if list(params)[: len(used)] != list(used):
        return "does not have the inputs in the order of the first reads"
    return None


def _output_problem(region: Function, is_read: Sequence[bool]) -> str | None:
    result_index = {id(result): index for index, result in enumerate(r for b in region.bindings for r in b.results)}
    order = [result_index.get(id(result), -1) for result in region.results]
    if -1 in order:
        return "has an output not produced by an op of the region"
    if order != sorted(order):
        return "does not have the outputs in the order of the producing ops"
    input_symbols = type_symbols(region.params)
    for result, read in zip(region.results, is_read, strict=True):
        if len(order) > 1 and not read and given_symbols(result.type) <= input_symbols:
            return "has an unread output"
    return None
