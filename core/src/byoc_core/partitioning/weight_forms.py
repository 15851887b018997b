"""Forms of swappable weights asked for by backends, such as packed forms, for the parameters of compiled functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from byoc_core.backend.info import CodegenResult, CompileContext
from byoc_core.errors import CodegenError
from byoc_core.ir import CALL, Function, IRModule

__all__ = ["WeightForms"]


@dataclass(frozen=True)
class WeightForms:
    """The swappable weights of a module in codegen, and the forms that compiled functions ask for.

    Attributes:
        inputs: by function name, the inputs for swappable weights.
        by_symbol: receives, by global symbol and number of the parameter, a function of the weight alone: the compiled
            function reads the result in place of the weight.
        params: receives, by region, the numbers of the parameters that get a swappable weight in every call.
    """

    inputs: Mapping[str, Collection[str]] = field(default_factory=dict)
    by_symbol: dict[str, Mapping[int, Function]] = field(default_factory=dict)
    params: dict[str, frozenset[int]] = field(default_factory=dict)

    def find_params(self, module: IRModule, regions: Sequence[Function]) -> dict[str, frozenset[int]]:
        """Find the parameters of regions that get a swappable weight in every call; return regions with any.

        A region called in a body of control flow has no such parameters: the operands belong to the body.

        Args:
            module: the module with the calls.
            regions: the regions.
        """
        if not self.inputs:
            return {}
        found: dict[str, frozenset[int]] = {}
        names = {region.name for region in regions}
        for function in module.functions.values():
            own = self.inputs.get(function.name, ())
            weights = {param for name, param in zip(function.input_names, function.params, strict=True) if name in own}
            top = set(map(id, function.bindings))
            for binding in function.walk():
                callee = str(binding.attrs["callee"]) if binding.op is CALL else ""
                if callee in names:
                    is_top = id(binding) in top
                    numbers = {k for k, operand in enumerate(binding.operands) if is_top and operand in weights}
                    found[callee] = found.get(callee, frozenset(numbers)) & numbers
        found = {name: numbers for name, numbers in found.items() if numbers}
        self.params.update(found)
        return found

    def record(self, result: CodegenResult, regions: Sequence[Function], context: CompileContext) -> None:
        """Record the forms asked for by a backend.

        Args:
            result: the result of the backend.
            regions: the functions of the context's weights.
            context: the context of the backend.

        Raises:
            CodegenError: a parameter gets no swappable weight, or a form is no function of a weight to a value of the
                weight's type.
        """
        by_name = {region.name: region for region in regions}
        for name, forms in result.prepared_weights.items():
            for number, form in forms.items():
                if number not in context.weights.get(name, ()):
                    problem = f"asks for a form of parameter {number} of function `{name}`"
                    raise CodegenError(f"backend `{context.backend}`", f"{problem}, which gets no swappable weight")
                _check_form(form, by_name[name], number, f"backend `{context.backend}`")
            if forms and name not in result.rejections:
                self.by_symbol[str(by_name[name].attrs["global_symbol"])] = forms


def _check_form(form: Function, region: Function, number: int, where: str) -> None:
    expected = region.params[number].type
    types = [value.type for value in (*form.params, *form.results)]
    if len(form.params) != 1 or types != [expected, expected]:
        raise CodegenError(
            where,
            f"asks for a form of parameter {number} of function `{region.name}` with another type",
            got=", ".join(map(str, types)),
            expected=f"a function from {expected} to the same type",
        )
