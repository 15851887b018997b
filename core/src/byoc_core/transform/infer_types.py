"""Type inference: runs every type rule again and rewires values with changed types.

:class:`InferTypes` and :func:`retype` serve changes to more exact types: binding of parameters, constant folding,
assumed sizes of the cost model. :func:`byoc_core.transform.specialise.specialise` substitutes sizes without type rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.dims import Dim, DimExpr, solve_symbol, substitute
from byoc_core.errors import IRTypeError
from byoc_core.ir import (
    COMPOSITE,
    IF,
    LOOP,
    AttrValue,
    Binding,
    Function,
    IRModule,
    TensorType,
    Type,
    Value,
    Var,
    infer_results,
)
from byoc_core.transform.pass_ import Pass
from byoc_core.transform.rewrite import remap

__all__ = ["InferTypes", "region_inputs", "retype", "substituted", "substituted_type"]


@dataclass(frozen=True)
class InferTypes(Pass):
    """Inference of all result types after parameters of a function got more exact types.

    Attributes:
        params: new types by parameter name (the model's input name, or the parameter's own).
        function: the function with the changed parameters.
    """

    params: Mapping[str, TensorType] = field(default_factory=dict)
    function: str = "main"

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with new types.

        Raises:
            IRTypeError: a new parameter type contradicts the old one, or an op does not fit the new types.
        """
        function = module[self.function]
        by_name = dict(zip(function.input_names, function.params, strict=True))
        unknown = sorted(set(self.params) - set(by_name))
        if unknown:
            where = f"function `{self.function}`"
            raise IRTypeError(where, f"has no parameter `{unknown[0]}`", expected=", ".join(by_name))
        params = [(by_name[name], Var(by_name[name].name, type_)) for name, type_ in self.params.items()]
        fresh = {id(old): new for old, new in params}
        changed = replace(function, params=tuple(fresh.get(id(param), param) for param in function.params))
        return module.with_function(retype(changed, module.functions, params))


def retype(function: Function, functions: Mapping[str, Function], replaced: Sequence[tuple[Var, Value]]) -> Function:
    """Infer the types of a function again after the replacement of some values.

    Symbols with a size determined by the new types are replaced throughout.

    Args:
        function: the function.
        functions: the callees of calls, by name.
        replaced: pairs of an old value and its replacement.
    """
    sizes: dict[str, Dim] = {}
    for old, new in replaced:
        _learn_sizes(old, new.type, sizes)
    return _Retyper(functions, sizes).function(function, {id(old): new for old, new in replaced})


def _learn_sizes(old: Var, new: Type, sizes: dict[str, Dim]) -> None:
    if not isinstance(old.type, TensorType) or not isinstance(new, TensorType):
        return
    if old.type.dtype != new.dtype:
        raise IRTypeError(f"parameter `{old.name}`", "gets another dtype", got=new.dtype, expected=old.type.dtype)
    if old.type.shape is None or new.shape is None:
        return
    if len(old.type.shape) != len(new.shape):
        raise IRTypeError(f"parameter `{old.name}`", "gets another rank", got=new, expected=old.type)
    for before, after in zip(old.type.shape, new.shape, strict=True):
        solved = solve_symbol(before, after) if isinstance(after, int) else None
        if solved is not None:
            name, size = solved
            if sizes.setdefault(name, size) != size:
                where = f"parameter `{old.name}`"
                raise IRTypeError(where, f"gives `{name}` a second size", got=size, expected=sizes[name])
        elif isinstance(before, int) and isinstance(after, int) and before != after:
            raise IRTypeError(f"parameter `{old.name}`", "gets another size", got=new, expected=old.type)


class _Retyper:
    def __init__(self, functions: Mapping[str, Function], sizes: Mapping[str, Dim]) -> None:
        self._functions = functions
        self._sizes = sizes

    def function(self, function: Function, mapping: dict[int, Value]) -> Function:
        params = tuple(self._param(param, mapping) for param in function.params)
        bindings = tuple(self._binding(binding, mapping) for binding in function.bindings)
        results = tuple(remap(result, mapping) for result in function.results)
        return replace(function, params=params, bindings=bindings, results=results)

    def _param(self, param: Var, mapping: dict[int, Value]) -> Var:
        type_ = substituted_type(param.type, self._sizes)
        if type_ == param.type:
            return param
        mapping[id(param)] = fresh = Var(param.name, type_)
        return fresh

    def _binding(self, binding: Binding, mapping: dict[int, Value]) -> Binding:
        operands = tuple(remap(operand, mapping) for operand in binding.operands)
        new_attrs = {key: substituted(value, self._sizes) for key, value in binding.attrs.items()}
        attrs = binding.op.normalise_attrs(new_attrs)
        regions = tuple(
            self._region(region, region_inputs(binding, operands, region, self._sizes)) for region in binding.regions
        )
        types = infer_results(
            binding.op,
            operands,
            attrs,
            regions=regions,
            declared=tuple(substituted_type(result.type, self._sizes) for result in binding.results),
            functions=self._functions,
        )
        results = tuple(
            old if old.type == type_ else Var(old.name, type_)
            for old, type_ in zip(binding.results, types, strict=True)
        )
        mapping.update((id(old), new) for old, new in zip(binding.results, results, strict=True))
        return replace(binding, operands=operands, attrs=attrs, regions=regions, results=results)

    def _region(self, region: Function, types: tuple[Type, ...]) -> Function:
        mapping: dict[int, Value] = {}
        params = []
        for param, type_ in zip(region.params, types, strict=True):
            params.append(Var(param.name, type_))
            mapping[id(param)] = params[-1]
        return self.function(replace(region, params=tuple(params)), mapping)


def region_inputs(
    binding: Binding, operands: Sequence[Value], region: Function, sizes: Mapping[str, Dim]
) -> tuple[Type, ...]:
    """Return the types of a region's parameters, derived from the operands of the op with the region.

    Args:
        binding: the op with the region, on the former operands.
        operands: the new operands.
        region: a region of the op.
        sizes: the replacements of symbols.
    """
    types = tuple(operand.type for operand in operands)
    if binding.op is COMPOSITE:
        return types
    if binding.op is IF:
        return types[1:]
    if binding.op is LOOP:
        carried = zip(region.params[1:], binding.operands[2:], types[2:], strict=True)
        return (region.params[0].type, *(_carried(param.type, old.type, new, sizes) for param, old, new in carried))
    return tuple(param.type for param in region.params)


def _carried(param: Type, old: Type, new: Type, sizes: Mapping[str, Dim]) -> Type:
    """Return the type of a loop's parameter for an operand of a new type; sizes changed by rounds stay symbolic."""
    if param == old or not (
        isinstance(param, TensorType) and isinstance(old, TensorType) and isinstance(new, TensorType)
    ):
        return new
    dims = zip(param.shape or (), old.shape or (), new.shape or (), strict=True)
    return TensorType(
        tuple(substitute(dim, sizes) if dim != before else after for dim, before, after in dims), new.dtype
    )


def substituted_type(type_: Type, sizes: Mapping[str, Dim]) -> Type:
    """Return a type with symbols replaced by sizes."""
    return type_.substitute(sizes) if isinstance(type_, TensorType) else type_


def substituted(value: AttrValue, sizes: Mapping[str, Dim]) -> AttrValue:
    """Return an attribute with symbols replaced by sizes."""
    if isinstance(value, DimExpr):
        return substitute(value, sizes)
    if isinstance(value, tuple):
        return tuple(substituted(item, sizes) for item in value)
    return value
