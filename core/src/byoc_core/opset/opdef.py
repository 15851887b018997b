"""What an op is: frozen data that type rules, printers, parsers, cost models and the host all read.

Adding an op is adding one :class:`OpDef` to a registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim, product, symbol
from byoc_core.dtypes import dtype_info
from byoc_core.errors import IRError, IRTypeError, near_names
from byoc_core.opset.attributes import REQUIRED, AttrKind, AttrSpec, AttrValue
from byoc_core.opset.types import TensorType, Type

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "REQUIRED",
    "AttrKind",
    "AttrSpec",
    "AttrValue",
    "CostContext",
    "OpDef",
    "OpRegistry",
    "OperandSpec",
    "Trait",
    "TypeContext",
    "no_flops",
]

Kernel = Callable[..., "npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]"]
"""A reference kernel: ``kernel(*inputs, **attributes)`` gives one array, or a tuple of arrays."""


class Trait(Enum):
    """What passes and backends may assume of an op."""

    PURE = "pure"
    """Same inputs, same outputs, no effect: may be removed, repeated and moved."""
    ELEMENTWISE = "elementwise"
    """Each result element depends on the operand elements at its own (broadcast) position only."""
    COMMUTATIVE = "commutative"
    """The two operands may be swapped."""
    RESHAPING = "reshaping"
    """The result holds the operand's elements in the same row-major order."""
    REDUCTION = "reduction"
    """Combines the elements along axes."""
    DATA_DEPENDENT = "data-dependent"
    """The elements of the operands decide sizes of the results; each binding declares fresh symbols for them."""


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """One operand of an op.

    Attributes:
        name: for messages.
        variadic: whether it stands for zero or more values; of the last operand only.
        doc: one sentence.
    """

    name: str
    variadic: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class TypeContext:
    """What a type rule sees.

    Attributes:
        op: the op's name, for messages.
        operands: operand types, in order.
        attrs: normalised attributes, defaults filled in.
        declared: result types as declared, for ops whose rule cannot find them alone (``declares_results``);
            else ``None``.
        regions: the nested functions (:class:`~byoc_core.ir.Function`).
        callee: the function that a ``call`` names, else ``None``.
        operand_names: names for messages, parallel to ``operands``.
    """

    op: str
    operands: tuple[Type, ...]
    attrs: Mapping[str, Any]
    declared: tuple[Type, ...] | None = None
    regions: tuple[Any, ...] = ()  # not of their class: the run side knows ops, and no functions of the IR
    callee: Any = None
    operand_names: Sequence[str] = ()

    def tensor(self, index: int) -> TensorType:
        """Gives operand ``index`` as a tensor type.

        Raises:
            IRTypeError: it is an opaque object.
        """
        type_ = self.operands[index]
        if not isinstance(type_, TensorType):
            raise self.error("is not a tensor", operand=index, got=type_)
        return type_

    def shape(self, index: int) -> tuple[Dim, ...]:
        """Gives the shape of tensor operand ``index``.

        Raises:
            IRTypeError: it is no tensor, or its rank is unknown.
        """
        shape = self.tensor(index).shape
        if shape is None:
            raise self.error("needs a known rank", operand=index)
        return shape

    def error(
        self, problem: str, *, operand: int | None = None, got: object = None, expected: object = None
    ) -> IRTypeError:
        """Gives the error to raise: it names the op and, where given, the operand."""
        where = f"op `{self.op}`"
        if operand is not None and operand < len(self.operand_names):
            where += f", operand `{self.operand_names[operand]}`"
        return IRTypeError(where, problem, got=got, expected=expected)


@dataclass(frozen=True, slots=True)
class CostContext:
    """What a cost formula sees: operand types, result types and normalised attributes."""

    operands: tuple[Type, ...]
    results: tuple[Type, ...]
    attrs: Mapping[str, Any]

    def elements(self, index: int = 0) -> Dim:
        """Gives the number of elements of result ``index`` (a fresh symbol ``unknown`` where the rank is unknown)."""
        return _elements(self.results[index])

    def operand_elements(self, index: int) -> Dim:
        """Gives the number of elements of operand ``index``."""
        return _elements(self.operands[index])


def _elements(type_: Type) -> Dim:
    if not isinstance(type_, TensorType):
        return 0
    return symbol("unknown") if type_.shape is None else product(type_.shape)


def bytes_touched(context: CostContext) -> Dim:
    """Gives the bytes of all operands read once and all results written once."""
    total: Dim = 0
    for type_ in (*context.operands, *context.results):
        if isinstance(type_, TensorType):
            total = total + _elements(type_) * dtype_info(type_.dtype).itemsize
    return total


def no_flops(context: CostContext) -> Dim:
    """Gives 0: the op only moves data."""
    return 0


def unstated_flops(context: CostContext) -> Dim:
    """Return one operation for each element of the results: what an op counts that states no formula."""
    total: Dim = 0
    for type_ in context.results:
        total = total + _elements(type_)
    return total


@dataclass(frozen=True, eq=False)
class OpDef:
    """An op, as data.

    Attributes:
        name: dotted name as in script text after ``R.`` (``"add"``, ``"nn.conv2d"``).
        operands: what it takes, in order.
        attrs: its attributes, in the order they print.
        infer: type rule: result types from a :class:`TypeContext`; raises :class:`IRTypeError` on a misfit. The core
            calls it through :func:`byoc_core.ir.infer_results`, which also takes other iterables, or one type alone.
        traits: what passes may assume.
        flops: floating-point operations (a multiply-add counts two). :func:`no_flops` says that the op only moves data,
            so that its results are judged bit for bit. An op that states nothing is judged as arithmetic, and counts
            one operation for each element of its results.
        nbytes: bytes read and written.
        kernel: the numpy reference kernel that defines the op; ``None`` for structural ops.
        canonicalise: brings equivalent attribute values to one form (``padding=(1, 1)`` to four ints);
            may raise ``IRTypeError``.
        complete: brings attributes as a person gives them to those that the op has, by its operands' types (a count of
            equal parts to their sizes); may raise ``IRTypeError``.
        declares_results: result types stand in the binding, because the rule alone cannot find them.
        num_regions: nested functions it holds.
        doc: what it computes, with shapes.
    """

    name: str
    operands: tuple[OperandSpec, ...]
    infer: Callable[[TypeContext], tuple[Type, ...]]
    attrs: tuple[AttrSpec, ...] = ()
    traits: frozenset[Trait] = frozenset({Trait.PURE})
    flops: Callable[[CostContext], Dim] = unstated_flops
    nbytes: Callable[[CostContext], Dim] = bytes_touched
    kernel: Kernel | None = None
    canonicalise: Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]] | None = None
    complete: Callable[[Mapping[str, object], Sequence[Type]], Mapping[str, object]] | None = None
    declares_results: bool = False
    num_regions: int = 0
    doc: str = ""
    _specs: Mapping[str, AttrSpec] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_specs", MappingProxyType({spec.name: spec for spec in self.attrs}))

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def states_flops(self) -> bool:
        """Whether the op says how many operations it needs."""
        return self.flops is not unstated_flops

    def has_trait(self, trait: Trait) -> bool:
        """Tells whether the op has a trait."""
        return trait in self.traits

    def check_arity(self, count: int) -> None:
        """Raises :class:`IRTypeError` unless the op takes ``count`` operands."""
        variadic = bool(self.operands) and self.operands[-1].variadic
        if count < len(self.operands) - variadic or (count > len(self.operands) and not variadic):
            names = ", ".join(spec.name + ("..." if spec.variadic else "") for spec in self.operands)
            least = len(self.operands) - variadic
            raise IRTypeError(
                f"op `{self.name}`",
                f"takes {least}{' or more' if variadic else ''} operands ({names})",
                got=count,
            )

    def operand_names(self, count: int) -> tuple[str, ...]:
        """Gives a name for each of ``count`` operands; those of a variadic operand are numbered."""
        names = [spec.name for spec in self.operands]
        if self.operands and self.operands[-1].variadic:
            last = names.pop()
            names += [f"{last}[{index}]" for index in range(count - len(names))]
        return tuple(names)

    def attrs_for(self, given: Mapping[str, object], operands: Sequence[Type]) -> Mapping[str, AttrValue]:
        """Return the attributes that a person gave in their stored form, completed by the operands' types.

        Raises:
            IRTypeError: as :meth:`normalise_attrs`, or what was given does not fit the operands.
        """
        return self.normalise_attrs(given if self.complete is None else self.complete(given, operands))

    def normalise_attrs(self, given: Mapping[str, object]) -> Mapping[str, AttrValue]:
        """Gives all attributes in declared order, defaults filled in, values in stored form.

        Raises:
            IRTypeError: an attribute is unknown, missing or of the wrong type.
        """
        for name in given:
            if name not in self._specs:
                hint = near_names(name, self._specs)
                raise IRTypeError(
                    f"op `{self.name}`",
                    f"has no attribute `{name}`",
                    expected=", ".join(self._specs) or "none",
                    hint=hint or None,
                )
        normal: dict[str, AttrValue] = {}
        for name, spec in self._specs.items():
            value = given.get(name, spec.default)
            if value is REQUIRED:
                raise IRTypeError(f"op `{self.name}`", f"needs attribute `{name}`")
            try:
                normal[name] = spec.normalise(value)
            except IRTypeError as error:
                raise IRTypeError(
                    f"op `{self.name}`, {error.where}",
                    error.problem,
                    got=error.got,
                    expected=error.expected,
                    hint=error.hint,
                ) from error
        return self.canonicalise(normal) if self.canonicalise else normal


class OpRegistry(Mapping[str, OpDef]):
    """Ops by name. Filled once, then frozen, handed to whoever parses or builds IR."""

    def __init__(self, ops: Iterable[OpDef] = ()) -> None:
        self._ops: dict[str, OpDef] = {}
        for op in ops:
            if op.name in self._ops:
                raise IRError(f"op `{op.name}`", "is defined twice")
            self._ops[op.name] = op

    def find(self, name: str) -> OpDef:
        """Gives the op of that name.

        Raises:
            IRTypeError: there is none; near names are listed.
        """
        op = self._ops.get(name)
        if op is None:
            raise IRTypeError(f"op `{name}`", "is not known", hint=near_names(name, self._ops) or None)
        return op

    def extended(self, ops: Iterable[OpDef]) -> OpRegistry:
        """Gives a registry that also holds ``ops``."""
        return OpRegistry([*self._ops.values(), *ops])

    def __getitem__(self, name: str) -> OpDef:
        return self._ops[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)
