"""Binding of parameters to constant arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy.typing as npt

from byoc_core.errors import IRError, near_names
from byoc_core.ir import IRModule, Value, states_of
from byoc_core.transform.infer_types import retype
from byoc_core.transform.pass_ import Pass

__all__ = ["BindParams"]


@dataclass(frozen=True)
class BindParams(Pass):
    """Replacement of parameters of a function by constants.

    Attributes:
        params: arrays by parameter name (the model's input name, or the parameter's own).
        function: the name of the function.
    """

    params: Mapping[str, npt.ArrayLike]
    function: str = "main"

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module with fewer parameters; types depending on the sizes of bound parameters become exact.

        Raises:
            IRError: no such parameter, a state, or the array does not have the parameter's type.
        """
        function = module[self.function]
        by_name = dict(zip(function.input_names, function.params, strict=True))
        mapping: dict[int, Value] = {}
        for name, array in self.params.items():
            if name not in by_name:
                raise IRError(
                    f"function `{self.function}`",
                    f"has no parameter `{name}`",
                    expected=", ".join(by_name) or "none",
                    hint=near_names(name, by_name) or None,
                )
            mapping[id(by_name[name])] = module.constants.add(array)
        bound_states = [state.input for state in states_of(function) if state.input in self.params]
        if bound_states:
            raise IRError(
                f"function `{self.function}`",
                f"parameter `{bound_states[0]}` is a state and cannot be bound",
                hint="The initial value of a state may be a constant.",
            )
        unbound = [(name, param) for name, param in by_name.items() if id(param) not in mapping]
        attrs = dict(function.attrs)
        if "input_names" in attrs:
            attrs["input_names"] = tuple(name for name, _ in unbound)
        shorter = replace(function, params=tuple(param for _, param in unbound), attrs=attrs)
        replaced = [(param, mapping[id(param)]) for param in function.params if id(param) in mapping]
        return module.with_function(retype(shorter, module.functions, replaced))
