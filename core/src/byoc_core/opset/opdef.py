"""The definition of an op: frozen data for type rules, passes, printers, parsers, cost models, judges and the host.

Adding an op means adding an :class:`OpDef` to a registry. A fact not stated by an :class:`OpDef` has a safe default.
:meth:`OpDef.unstated` lists the missing recommended facts.
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

ReferenceKernel = Callable[..., "npt.NDArray[Any] | tuple[npt.NDArray[Any], ...]"]
"""A reference kernel: ``kernel(*inputs, **attributes)`` returns one array, or a tuple of arrays."""


class Trait(Enum):
    """A property of an op, for passes and backends to rely on."""

    PURE = "pure"
    """Same inputs, same outputs, no effect: may be removed, repeated and moved."""
    ELEMENTWISE = "elementwise"
    """Each result element depends only on the operand elements at the same (broadcast) position."""
    COMMUTATIVE = "commutative"
    """The two operands may be swapped."""
    EITHER_ZERO = "either-zero"
    """A zero in the result may have either sign, at the implementation's choice."""
    RESHAPING = "reshaping"
    """The result holds the operand's elements in the same row-major order."""
    SELECTING = "selecting"
    """Every element of a result is an element of an operand, chosen by position, or as the largest of some.

    The largest of none is the least element of the dtype.
    """
    REDUCTION = "reduction"
    """Combines the elements along axes."""
    DATA_DEPENDENT = "data-dependent"
    """The elements of the operands decide sizes of the results; each binding declares fresh symbols for these sizes."""
    WIDENING = "widening"
    """The results are the floats of a narrow stored form. Backends may compute on the stored form."""
    READS_BITS = "reads-bits"
    """The bits of the elements decide the results: a value in another dtype does not stand for the same bits."""
    NONDETERMINISTIC = "nondeterministic"
    """Each run gives other results, without another effect: may be removed, and moved within its body.

    The op lacks :attr:`PURE`: it is never repeated, merged with an equal op, or computed while compiling.
    """


PURE = frozenset({Trait.PURE})
SELECTING = PURE | {Trait.SELECTING}
"""The traits of most ops, and of most ops without arithmetic."""


@dataclass(frozen=True, slots=True)
class OperandSpec:
    """An operand of an op.

    Attributes:
        name: for messages.
        variadic: whether the operand stands for zero or more values; of the last operand only.
        doc: a sentence.
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
        operands: the operands, in order.
        attrs: the attributes, in printed order.
        infer: type rule: result types from a :class:`TypeContext`; raises :class:`IRTypeError` on a misfit. The core
            calls the rule through :func:`byoc_core.ir.infer_results`, which also takes other iterables, or a single
            type.
        traits: the properties assumed by passes.
        flops: floating-point operations (a multiply-add counts two). :func:`no_flops` means: the op only moves data,
            and results are judged bit for bit. An op without a formula counts one operation for each element of the
            results.
        nbytes: bytes read and written.
        kernel: the defining numpy reference kernel; ``None`` for structural ops.
        rounds: rounds of the Python loop in the kernel, for the cost of folding constants; 1 by default.
        canonicalise: brings equivalent attribute values to a canonical form (``padding=(1, 1)`` to four ints);
            may raise ``IRTypeError``.
        complete: converts attributes given by a person to attributes of the op, by the operands' types (a count of
            equal parts to sizes); may raise ``IRTypeError``.
        declares_results: result types stand in the binding, because the rule alone cannot infer the types.
        sized_results: result types to declare, from a fresh symbol for the size known only at run time; of ops with
            :attr:`Trait.DATA_DEPENDENT`.
        num_regions: number of nested functions.
        leading_attr: the first attribute in script text: ``R.op("<attribute>", (operands, ...), ...)``.
        view: the layout of results in the operand's memory, for an op that only rearranges elements. Ops with
            :attr:`Trait.RESHAPING` have a rule by default. By default other results are new memory.
        identity: whether the result is the only operand, if the types agree. True of :attr:`Trait.RESHAPING`; by
            default never.
        permute: the computation of the op on operands with axes stored in another order. Ops with
            :attr:`Trait.ELEMENTWISE` need none; by default transposes stay in front of the op.
        rounding: the permitted error of results. By default an op without FLOPs moves data, and an op with FLOPs
            has no bound for each element (``Rule.NORM``).
        bound: the bound of results; by default nothing is known.
        cases: canonical uses, the most common first; by default none, so the conformance kit tries the op only
            in the patterns of backends.
        onnx: the ONNX spelling of the op, if operands and attributes agree.
        doc: the meaning of the op, with shapes.
    """

    name: str
    operands: tuple[OperandSpec, ...]
    infer: Callable[[TypeContext], tuple[Type, ...]]
    attrs: tuple[AttrSpec, ...] = ()
    traits: frozenset[Trait] = PURE
    flops: Callable[[OpContext], Dim] = unstated_flops
    nbytes: Callable[[OpContext], Dim] = bytes_touched
    kernel: ReferenceKernel | None = None
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
        """Whether the op states a formula for the number of operations."""
        return self.flops is not unstated_flops

    @property
    def unstated(self) -> tuple[str, ...]:
        """The recommended facts not stated by the op, each replaced by a default."""
        is_stated = {
            "kernel": self.kernel is not None,
            "flops": self.states_flops,
            "rounding": self.rounding is not None or self.flops is no_flops,
            "cases": self.cases is not _no_cases,
            "doc": bool(self.doc),
        }
        return tuple(fact for fact, is_present in is_stated.items() if not is_present)

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
            IRTypeError: the op does not take ``count`` operands.
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
        """Return a name for each of ``count`` operands; parts of a variadic operand are numbered."""
        names = [spec.name for spec in self.operands]
        if self.operands and self.operands[-1].variadic:
            last = names.pop()
            names += [f"{last}[{index}]" for index in range(count - len(names))]
        return tuple(names)

    def attrs_for(self, given: Mapping[str, object], operands: Sequence[Type]) -> Mapping[str, AttrValue]:
        """Return user-given attributes in stored form, completed by the operands' types.

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
