"""What an op is: frozen data that type rules, passes, printers, parsers, cost models, judges and the host all read.

Adding an op is adding one :class:`OpDef` to a registry. A fact that an :class:`OpDef` does not state has a default that
is safe, and that :meth:`OpDef.unstated` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim
from byoc_core.errors import IRTypeError, near_names
from byoc_core.opset.attributes import REQUIRED, AttrSpec, AttrValue
from byoc_core.opset.contexts import OpContext, TypeContext, bytes_touched, no_flops, unstated_flops
from byoc_core.opset.views import RESHAPED, ViewRule

if TYPE_CHECKING:
    import numpy.typing as npt

    from byoc_core.opset.cases import OpCase
    from byoc_core.opset.onnx_spelling import OnnxSpelling
    from byoc_core.opset.permutation import PermuteRule
    from byoc_core.opset.rounding import Rounding
    from byoc_core.opset.types import TensorType, Type
    from byoc_core.opset.value_bounds import BoundRule

__all__ = ["OpDef", "OperandSpec", "Trait"]

Kernel = Callable[..., "npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]"]
"""A reference kernel: ``kernel(*inputs, **attributes)`` returns one array, or a tuple of arrays."""


class Trait(Enum):
    """What passes and backends may assume of an op."""

    PURE = "pure"
    """Same inputs, same outputs, no effect: may be removed, repeated and moved."""
    ELEMENTWISE = "elementwise"
    """Each result element depends on the operand elements at its own (broadcast) position only."""
    COMMUTATIVE = "commutative"
    """The two operands may be swapped."""
    EITHER_ZERO = "either-zero"
    """Where the result is a zero, it may have either sign: an implementation chooses."""
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


def _always(_: OpContext) -> bool:
    return True


def _no_cases() -> Iterable[OpCase]:
    return ()


def _one_round(_: OpContext) -> int:
    return 1


@dataclass(frozen=True, eq=False)
class OpDef:
    """An op, as data.

    Attributes:
        name: dotted name as in script text after ``R.`` (``"add"``, ``"nn.conv2d"``).
        operands: its operands, in order.
        attrs: its attributes, in the order they print.
        infer: type rule: result types from a :class:`TypeContext`; raises :class:`IRTypeError` on a misfit. The core
            calls it through :func:`byoc_core.ir.infer_results`, which also takes other iterables, or one type alone.
        traits: what passes may assume.
        flops: floating-point operations (a multiply-add counts two). :func:`no_flops` says that the op only moves data,
            so that its results are judged bit for bit. An op that states nothing counts one operation for each
            element of its results.
        nbytes: bytes read and written.
        kernel: the numpy reference kernel that defines the op; ``None`` for structural ops.
        rounds: rounds of the Python loop in the kernel, for the cost of folding constants; 1 by default.
        canonicalise: brings equivalent attribute values to one form (``padding=(1, 1)`` to four ints);
            may raise ``IRTypeError``.
        complete: brings attributes as a person gives them to those that the op has, by its operands' types (a count of
            equal parts to their sizes); may raise ``IRTypeError``.
        declares_results: result types stand in the binding, because the rule alone cannot find them.
        sized_results: result types to declare, from a fresh symbol for the size that only running tells; of ops with
            :attr:`Trait.DATA_DEPENDENT`.
        num_regions: nested functions it holds.
        leading_attr: the attribute that script text has first: ``R.op("<attribute>", (operands, ...), ...)``.
        view: where results lie in the operand's memory, of an op that only rearranges. Ops with
            :attr:`Trait.RESHAPING` have a rule without stating one. By default results are new memory.
        identity: whether the result is the only operand, where the types agree. True of :attr:`Trait.RESHAPING`; by
            default never.
        permute: how the op computes on operands whose axes are stored in another order. Ops with
            :attr:`Trait.ELEMENTWISE` need none; by default transposes stay in front of the op.
        rounding: how far a right result may be off. By default an op without FLOPs moves data, and an op with FLOPs
            has no bound for each element (``Rule.NORM``).
        bound: how large results can be; by default nothing is known.
        cases: canonical uses, the most common first; by default none, so that the conformance kit tries the op only
            in the patterns of backends.
        onnx: how ONNX spells the op, where operands and attributes agree.
        doc: what it computes, with shapes.
    """

    name: str
    operands: tuple[OperandSpec, ...]
    infer: Callable[[TypeContext], tuple[Type, ...]]
    attrs: tuple[AttrSpec, ...] = ()
    traits: frozenset[Trait] = frozenset({Trait.PURE})
    flops: Callable[[OpContext], Dim] = unstated_flops
    nbytes: Callable[[OpContext], Dim] = bytes_touched
    kernel: Kernel | None = None
    rounds: Callable[[OpContext], int] = _one_round
    canonicalise: Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]] | None = None
    complete: Callable[[Mapping[str, object], Sequence[Type]], Mapping[str, object]] | None = None
    declares_results: bool = False
    sized_results: Callable[[TypeContext, Dim], tuple[TensorType, ...]] | None = None
    num_regions: int = 0
    leading_attr: str | None = None
    view: ViewRule | None = None
    identity: Callable[[OpContext], bool] | None = None
    permute: PermuteRule | None = None
    rounding: Rounding | None = None
    bound: BoundRule | None = None
    cases: Callable[[], Iterable[OpCase]] = _no_cases
    onnx: OnnxSpelling | None = None
    doc: str = ""
    _specs: Mapping[str, AttrSpec] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_specs", MappingProxyType({spec.name: spec for spec in self.attrs}))
        if Trait.RESHAPING in self.traits:
            object.__setattr__(self, "view", self.view or RESHAPED)
            object.__setattr__(self, "identity", self.identity or _always)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def states_flops(self) -> bool:
        """Whether the op says how many operations it needs."""
        return self.flops is not unstated_flops

    @property
    def unstated(self) -> tuple[str, ...]:
        """The facts that an op ought to state, and does not: a default stands for each."""
        is_stated = {
            "kernel": self.kernel is not None,
            "flops": self.states_flops,
            "rounding": self.rounding is not None or self.flops is no_flops,
            "cases": self.cases is not _no_cases,
            "doc": bool(self.doc),
        }
        return tuple(fact for fact, stated in is_stated.items() if not stated)

    @cached_property
    def canonical_cases(self) -> tuple[OpCase, ...]:
        """The op's cases, the most common first."""
        return tuple(replace(item, op=self.name) for item in self.cases())

    def has_trait(self, trait: Trait) -> bool:
        """Return whether the op has a trait."""
        return trait in self.traits

    def check_arity(self, count: int) -> None:
        """Check that the op takes ``count`` operands.

        Raises:
            IRTypeError: it does not.
        """
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
        """Return a name for each of ``count`` operands; those of a variadic operand are numbered."""
        names = [spec.name for spec in self.operands]
        if self.operands and self.operands[-1].variadic:
            last = names.pop()
            names += [f"{last}[{index}]" for index in range(count - len(names))]
        return tuple(names)

    def attrs_for(self, given: Mapping[str, object], operands: Sequence[Type]) -> Mapping[str, AttrValue]:
        """Return the attributes that a person gave in their stored form, completed by the operands' types.

        Raises:
            IRTypeError: as :meth:`normalise_attrs`, or the attributes do not fit the operands.
        """
        return self.normalise_attrs(given if self.complete is None else self.complete(given, operands))

    def normalise_attrs(self, given: Mapping[str, object]) -> Mapping[str, AttrValue]:
        """Return all attributes in declared order, defaults filled in, values in stored form.

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
