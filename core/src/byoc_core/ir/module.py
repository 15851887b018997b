"""The IR itself: modules, functions, bindings, values. SSA in a flat list; everything is frozen."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from byoc_core.errors import IRError, near_names
from byoc_core.ir.constants import Constant, ConstantStore
from byoc_core.ir.op_registry import default_ops
from byoc_core.opset.attributes import AttrValue
from byoc_core.opset.contexts import OpContext
from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry
from byoc_core.opset.types import Type

__all__ = ["DEFAULT_NAME", "Binding", "Function", "IRModule", "Location", "Value", "Var"]


class Var:
    """A value with a single definition: a parameter, or a result of a binding.

    Vars are compared by identity: two vars of equal name and type are two values.
    """

    __slots__ = ("name", "type")

    def __init__(self, name: str, type_: Type) -> None:
        self.name = name
        self.type = type_

    def __repr__(self) -> str:
        return f"<var {self.name}: {self.type}>"


Value = Var | Constant
"""An operand: a parameter or a result of a binding, or a constant."""


@dataclass(frozen=True, slots=True)
class Location:
    """The origin of a binding: a model file's node, or a line of script."""

    source: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.name}" if self.name else self.source


DEFAULT_NAME = "Module"
"""The name of a module without a given name."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


def _empty() -> Mapping[str, Any]:
    return _EMPTY


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """``results = op(operands, **attrs)`` with nested functions in ``regions``.

    Attributes:
        results: the defined values; at least one.
        op: the op.
        operands: the values read.
        attrs: all attributes of the op, normalised, in the op's declared order.
        regions: nested functions, self-contained: values come in as parameters.
        codegen: the backend claiming this op, or ``None``.
        location: the origin.
        schedule: the schedule chosen for the kernel of this op, one of the names given by ``byoc_schedules`` of the
            claiming backend; ``None`` for the backend's own choice. A schedule changes speed only.
    """

    results: tuple[Var, ...]
    op: OpDef
    operands: tuple[Value, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=_empty)
    regions: tuple[Function, ...] = ()
    codegen: str | None = None
    location: Location | None = None
    schedule: str | None = None

    @property
    def result(self) -> Var:
        """The only result.

        Raises:
            IRError: the binding has several.
        """
        if len(self.results) != 1:
            raise IRError(f"op `{self.op.name}`", f"has {len(self.results)} results instead of 1")
        return self.results[0]

    def claimed_by(self, backend: str | None) -> Binding:
        """Return the binding claimed by a backend, or by none."""
        return Binding(
            self.results, self.op, self.operands, self.attrs, self.regions, backend, self.location, self.schedule
        )

    def context(self) -> OpContext:
        """Return the types and attributes read by the op's formulas and rules."""
        return OpContext(tuple(o.type for o in self.operands), tuple(r.type for r in self.results), self.attrs)

    def cost_context(self) -> OpContext:
        """Deprecated since 0.2: use :meth:`context`."""
        warnings.warn(
            "`Binding.cost_context` is deprecated since byoc-core 0.2 and will be removed in 0.4: "
            "use `Binding.context`.",
            DeprecationWarning,
            stacklevel=2,
        )
        return self.context()

    def __repr__(self) -> str:
        return f"<binding {', '.join(r.name for r in self.results)} = {self.op.name}>"


@dataclass(frozen=True, eq=False, slots=True)
class Function:
    """A list of bindings in SSA order; also the form of every nested region.

    Attributes:
        name: the key in the module (for a region, for printing only).
        params: inputs, in order.
        bindings: in an order with every value defined before use.
        results: outputs, in order; params and constants may stand here too.
        attrs: ``Codegen`` (backend) and ``global_symbol`` (ABI name) annotate a function for ``RunCodegen``;
            ``input_names`` and ``output_names`` keep the original names of a model.
    """

    name: str
    params: tuple[Var, ...]
    bindings: tuple[Binding, ...]
    results: tuple[Value, ...]
    attrs: Mapping[str, AttrValue] = field(default_factory=_empty)

    @property
    def result_types(self) -> tuple[Type, ...]:
        """The types of all results."""
        return tuple(result.type for result in self.results)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs as known to callers."""
        names = self.attrs.get("input_names")
        return tuple(map(str, names)) if isinstance(names, tuple) else tuple(p.name for p in self.params)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs as known to callers; ``output0`` and so on for a function without output names."""
        names = self.attrs.get("output_names")
        return (
            tuple(map(str, names))
            if isinstance(names, tuple)
            else tuple(f"output{i}" for i in range(len(self.results)))
        )

    def with_attrs(self, **attrs: AttrValue) -> Function:
        """Return the function with attributes added or replaced."""
        return replace(self, attrs={**self.attrs, **attrs})

    def walk(self) -> Iterator[Binding]:
        """Yield every binding, with bindings of nested regions before the enclosing binding."""
        for binding in self.bindings:
            for region in binding.regions:
                yield from region.walk()
            yield binding

    def __eq__(self, other: object) -> bool:
        """Return whether the functions are structurally equal: names of values and locations do not count."""
        from byoc_core.ir.structural_equality import structurally_equal

        return isinstance(other, Function) and (self is other or structurally_equal(self, other))

    def __hash__(self) -> int:
        from byoc_core.ir.structural_equality import structural_hash

        return hash(structural_hash(self))

    def __repr__(self) -> str:
        return f"<function {self.name}: {len(self.bindings)} bindings>"


@dataclass(frozen=True, eq=False, slots=True)
class IRModule:
    """Functions by name, their constants, and attributes attached by passes.

    Attributes:
        functions: by name, in order.
        constants: the store; shared with derived modules.
        attrs: after ``RunCodegen`` ``external_mods`` (tuple of runtime modules) and ``external_functions`` (the
            compiled functions, by symbol); otherwise plain values.
        name: of the class in script.
        ops: the registry of op names in this module, used by passes. The core's own ops by default.
    """

    functions: Mapping[str, Function] = field(default_factory=_empty)
    constants: ConstantStore = field(default_factory=ConstantStore)
    attrs: Mapping[str, Any] = field(default_factory=_empty)
    name: str = DEFAULT_NAME
    ops: OpRegistry = field(default_factory=default_ops, repr=False)

    def __post_init__(self) -> None:
        for name, function in self.functions.items():
            if function.name != name:
                raise IRError(f"function `{function.name}`", f"is stored under another name in the module, `{name}`")

    def __getitem__(self, name: str) -> Function:
        if name not in self.functions:
            raise IRError(
                f"function `{name}`",
                "is not in the module",
                expected=", ".join(self.functions) or "no function at all",
                hint=near_names(name, self.functions) or None,
            )
        return self.functions[name]

    def knows(self, op: OpDef) -> bool:
        """Return whether the module's registry holds exactly this op under the op's name.

        A rule keyed by a name concerns the op registered under the name. Another op of the same name may stand in the
        module, as an object; rules keyed by the name do not apply to this op.
        """
        return self.ops.get(op.name) is op

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        """Return a module of these functions with the constants, attributes and ops of this module."""
        return replace(self, functions=dict(functions))

    def with_function(self, function: Function) -> IRModule:
        """Return the module with a function added or replaced."""
        return self.with_functions({**self.functions, function.name: function})

    def with_attrs(self, **attrs: Any) -> IRModule:
        """Return the module with attributes added or replaced."""
        return replace(self, attrs={**self.attrs, **attrs})

    def __eq__(self, other: object) -> bool:
        """Return whether modules are structurally equal.

        The name and the ops, names of values, locations and external modules do not count.
        """
        from byoc_core.ir.structural_equality import structurally_equal

        return isinstance(other, IRModule) and (self is other or structurally_equal(self, other))

    def __hash__(self) -> int:
        from byoc_core.ir.structural_equality import structural_hash

        return hash(structural_hash(self))

    def __str__(self) -> str:
        from byoc_core.ir.printer import print_module

        return print_module(self)
