"""Lint of ``byoc_supports`` on the canonical cases of all ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.errors import IRTypeError
from byoc_core.ir import (
    Binding,
    ConstantStore,
    Function,
    IRModule,
    OpDef,
    OperandSpec,
    OpRegistry,
    TensorType,
    Trait,
    Value,
    Var,
)
from byoc_core.lint.asking import Answer, ask_hook
from byoc_core.lint.findings import Finding
from byoc_core.ops.cases import OpCase, dtypes_of, function_of
from byoc_core.opset.contexts import no_flops
from byoc_core.partitioning.claiming.claim_filters import core_refusal
from byoc_core.pattern import Rejection

__all__ = ["Question", "ask_rules", "lint_rules"]

_MANY_DTYPES = 8
_UNKNOWN = OpDef(
    "lint.unknown",
    (OperandSpec("x"),),
    lambda context: (context.operands[0],),
    traits=frozenset({Trait.PURE, Trait.ELEMENTWISE}),
    doc="An undefined op.",
)


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """A canonical case as a function of one op, and the answer of ``byoc_supports``.

    Attributes:
        function: contains only this op.
        constants: the constants read by the function.
        answer: the hook's answer.
        kind: ``"static"``, ``"symbolic"``, ``"constants"`` (all operands but the first) or ``"data-dependent"``.
    """

    function: Function
    constants: ConstantStore
    answer: Answer
    kind: str

    @property
    def binding(self) -> Binding:
        """The op."""
        return self.function.bindings[0]

    def __str__(self) -> str:
        return (
            f"`{self.binding.op.name}` on {', '.join(str(value.type) for value in self.binding.operands) or 'nothing'}"
        )


def ask_rules(handle: BackendHandle, context: CompileContext, ops: OpRegistry) -> Iterator[Question]:
    """Yield every canonical case that the core asks the backend about, with the answer.

    Each case comes in the case's own dtype, and with symbolic sizes if the backend takes symbolic sizes. The first case
    of each op also comes in every dtype taken by the op. All this is repeated with constants for all operands but the
    first.
    """
    for op in ops.values():
        for index, case in enumerate(op.canonical_cases):
            dtypes = dtypes_of(case, op) if index == 0 else (case.dtype,)
            for kind, operands, constants in _variants(case, dtypes):
                question = _ask(handle, context, op, operands, case.attrs, kind, constants)
                if question is not None:
                    yield question


def _variants(case: OpCase, dtypes: Sequence[str]) -> Iterator[tuple[str, Sequence[Value], ConstantStore]]:
    """Yield kinds of question, with operands and the constants among the operands."""
    variants = [("static", case.types(dtype)) for dtype in dtypes]
    for everywhere in (False, True):
        types = case.symbolic_types(everywhere=everywhere)
        if any(type_.symbols for type_ in types):
            variants.append(("symbolic", types))
    for kind, types in dict.fromkeys(variants):
        yield kind, _parameters(types), ConstantStore()
    if len(case.operands) > 1:
        symbolic = case.symbolic_types()[0]
        for dtype in dtypes:
            constants = ConstantStore()
            fixed = [constants.add(array) for array in case.arrays(np.random.default_rng(0), dtype)[1:]]
            yield "constants", (*_parameters(case.types(dtype)[:1]), *fixed), constants
            if symbolic.symbols and dtype == case.dtype:
                yield "symbolic", (*_parameters([symbolic]), *fixed), constants


def _parameters(types: Sequence[TensorType]) -> tuple[Var, ...]:
    return tuple(Var(f"x{index}", type_) for index, type_ in enumerate(types))


def _ask(
    handle: BackendHandle,
    context: CompileContext,
    op: OpDef,
    operands: Sequence[Value],
    attrs: Mapping[str, object],
    kind: str,
    constants: ConstantStore,
) -> Question | None:
    """Return the question about a case with the answer; ``None`` if the op refuses or the core does not ask."""
    try:
        function, binding = function_of(op, operands, attrs)
    except IRTypeError:
        return None
    if core_refusal(binding, handle) is not None:
        return None
    kind = "data-dependent" if op.has_trait(Trait.DATA_DEPENDENT) else kind
    case_context = handle.context(IRModule({function.name: function}, constants), context.options)
    return Question(function, constants, ask_hook(lambda: handle.supports(binding, case_context)), kind)


def lint_rules(handle: BackendHandle, context: CompileContext, questions: Sequence[Question]) -> Iterator[Finding]:
    """Yield findings about the answers: one for each op and kind of fault."""
    found: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        if question.answer.fault:
            found.setdefault((question.binding.op.name, question.answer.fault), []).append(question)
    for (name, code), faulty in found.items():
        text = f"{faulty[0].answer.text}; in {len(faulty)} cases, the first {faulty[0]}"
        yield Finding(code, f"hook `byoc_supports`, op `{name}`", text)
    yield from _lint_new_ops(questions)
    yield from _lint_dtypes(questions)
    unknown = _ask(
        handle, context, _UNKNOWN, _parameters([TensorType((2, 3), "float32")]), {}, "static", ConstantStore()
    )
    if unknown is not None and unknown.answer.is_yes:
        text = "the hook claims an undefined op"
        hint = "Test for the ops known to codegen by name, and refuse all other ops."
        yield Finding("accepts-everything", "hook `byoc_supports`", text, hint=hint)


def _lint_new_ops(questions: Sequence[Question]) -> Iterator[Finding]:
    """Yield findings about ops not decided by the backend."""
    refused = {q.binding.op.name for q in questions if q.answer.rejection == Rejection.of_new_op(q.binding.op.name)}
    for name in sorted(refused):
        hint = "Claim the op, or add a reason to the backend's own table."
        yield Finding(
            "new-op",
            f"hook `byoc_supports`, op `{name}`",
            "the backend has neither a rule nor a reason for this op",
            hint=hint,
        )


def _lint_dtypes(questions: Sequence[Question]) -> Iterator[Finding]:
    """Yield a finding if computing ops are taken in every dtype, by a backend that refuses some cases."""
    answers_by_op: dict[str, dict[str, bool]] = {}
    for question in questions:
        op, first = question.binding.op, question.binding.operands[:1]
        if op.flops is not no_flops and first and isinstance(first[0].type, TensorType):
            taken_by_dtype = answers_by_op.setdefault(op.name, {})
            dtype = first[0].type.dtype
            taken_by_dtype[dtype] = taken_by_dtype.get(dtype, False) or question.answer.is_yes
    generous = [
        name
        for name, taken_by_dtype in answers_by_op.items()
        if len(taken_by_dtype) >= _MANY_DTYPES and all(taken_by_dtype.values())
    ]
    if generous and any(question.answer.rejection is not None for question in questions):
        names = ", ".join(f"`{name}`" for name in generous[:3]) + (" and more" if len(generous) > 3 else "")
        dtypes = sorted(answers_by_op[generous[0]])
        text = f"the hook claims {names} in every dtype of the op, such as {', '.join(dtypes[:4])}"
        hint = "Refuse the dtypes unsupported by codegen with a `Rejection`."
        yield Finding("supports-every-dtype", "hook `byoc_supports`", text, hint=hint)
