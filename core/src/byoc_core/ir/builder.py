"""The builder for IR made by Python code: it infers the types at each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from byoc_core.errors import IRError
from byoc_core.ir.cloning import clone_bindings, remap
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.infer import infer_results
from byoc_core.ir.module import Binding, Function, Location, Value, Var
from byoc_core.ir.op_registry import default_ops
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import Type

__all__ = ["FunctionBuilder"]

Operand = Value | npt.NDArray[np.generic] | np.generic


class FunctionBuilder:
    """A builder of a single function, binding by binding.

    Example::

        fb = FunctionBuilder("main")
        x = fb.param("x", tensor(("n", 10)))
        y = fb.emit("nn.relu", x)
        function = fb.finish(y)
        module = IRModule({"main": function}, fb.constants, ops=fb.ops)

    Args:
        name: the function's name.
        ops: the registry for op names; the core's own ops by default.
        constants: the store for constants; a new store by default.
        functions: the functions callable by ``call``.
    """

    def __init__(
        self,
        name: str = "main",
        *,
        ops: OpRegistry | None = None,
        constants: ConstantStore | None = None,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        self.name = name
        self.ops = default_ops() if ops is None else ops
        self.constants = ConstantStore() if constants is None else constants
        self.functions = functions
        self._params: list[Var] = []
        self._bindings: list[Binding] = []
        self._finished = False

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """The bindings so far, in order."""
        return tuple(self._bindings)

    def param(self, name: str, type_: Type) -> Var:
        """Add a parameter."""
        self._check_open()
        var = Var(name, type_)
        self._params.append(var)
        return var

    def const(self, array: npt.ArrayLike) -> Constant:
        """Store an array and return a reference."""
        return self.constants.add(array)

    def emit(
        self,
        op: str | OpDef,
        *operands: Operand,
        regions: Sequence[Function] = (),
        out_types: Sequence[Type] | None = None,
        names: Sequence[str] | None = None,
        location: Location | None = None,
        **attrs: object,
    ) -> Var | tuple[Var, ...]:
        """Add a binding and return the results.

        Args:
            op: the op, or the op's name.
            operands: values; numpy arrays become constants.
            regions: nested functions, for ops with regions.
            out_types: result types, for ops with declared result types.
            names: name hints of the results.
            location: the origin of the binding.
            attrs: the op's attributes.

        Returns:
            The result, or a tuple if the op has several.

        Raises:
            IRTypeError: operands or attributes do not fit the op.
        """
        binding = self.bind(op, operands, attrs, regions=regions, out_types=out_types, names=names, location=location)
        return binding.results if len(binding.results) != 1 else binding.results[0]

    def bind(
        self,
        op: str | OpDef,
        operands: Sequence[Operand],
        attrs: Mapping[str, object],
        *,
        regions: Sequence[Function] = (),
        out_types: Sequence[Type] | None = None,
        names: Sequence[str] | None = None,
        codegen: str | None = None,
        location: Location | None = None,
        schedule: str | None = None,
    ) -> Binding:
        """Add a binding and return the binding; like :meth:`emit`, with attributes as a mapping."""
        self._check_open()
        opdef = self.ops.find(op) if isinstance(op, str) else op
        values = tuple(o if isinstance(o, Var | Constant) else self.const(o) for o in operands)
        normal: Mapping[str, AttrValue] = opdef.attrs_for(attrs, [value.type for value in values])
        types = infer_results(
            opdef,
            values,
            normal,
            regions=tuple(regions),
            declared=None if out_types is None else tuple(out_types),
            functions=self.functions,
        )
        hints = tuple(names) if names else tuple(f"lv{len(self._bindings)}" for _ in types)
        if len(hints) != len(types):
            raise IRError(
                f"op `{opdef.name}`", "has the wrong number of result names", got=len(hints), expected=len(types)
            )
        results = tuple(Var(hint, type_) for hint, type_ in zip(hints, types, strict=True))
        binding = Binding(results, opdef, values, normal, tuple(regions), codegen, location, schedule)
        self._bindings.append(binding)
        return binding

    def inline(self, function: Function, arguments: Sequence[Value]) -> tuple[Value, ...]:
        """Add copies of all bindings of a function and return the results.

        Args:
            function: the function; its constants are in the builder's store.
            arguments: a value for each parameter, of the parameter's type.

        Raises:
            IRError: the number of arguments, or the type of an argument, differs from the parameters.
        """
        self._check_open()
        if len(arguments) != len(function.params):
            raise IRError(
                f"function `{function.name}`",
                "has the wrong number of arguments",
                got=len(arguments),
                expected=len(function.params),
            )
        mapping: dict[int, Value] = {}
        for param, argument in zip(function.params, arguments, strict=True):
            if param.type != argument.type:
                raise IRError(
                    f"function `{function.name}`, parameter `{param.name}`",
                    "has an argument of another type",
                    got=argument.type,
                    expected=param.type,
                )
            mapping[id(param)] = argument
        self._bindings += clone_bindings(function.bindings, mapping)
        return tuple(remap(result, mapping) for result in function.results)

    def finish(self, *results: Value, **attrs: AttrValue) -> Function:
        """Return the function and close the builder for further bindings.

        Args:
            results: the outputs.
            attrs: function attributes.
        """
        self._check_open()
        self._finished = True
        return Function(self.name, tuple(self._params), tuple(self._bindings), tuple(results), attrs)

    def _check_open(self) -> None:
        if self._finished:
            raise IRError(f"builder of `{self.name}`", "is finished", hint="Start a new builder.")
