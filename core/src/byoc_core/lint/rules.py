"""Lint of ``byoc_supports`` on the canonical cases of all ops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.errors import IRTypeError
from byoc_core.ir import Binding, Function, OpDef, OperandSpec, OpRegistry, TensorType, Trait
from byoc_core.lint.asking import Answer, ask_hook
from byoc_core.lint.findings import Finding
from byoc_core.ops.cases import new_function, op_cases
from byoc_core.partitioning.admission import core_refusal

__all__ = ["Question", "ask_rules", "lint_rules"]

_UNKNOWN = OpDef(
    "lint.unknown",
    (OperandSpec("x"),),
    lambda context: (context.operands[0],),
    traits=frozenset({Trait.PURE, Trait.ELEMENTWISE}),
    doc="An op that nobody has defined.",
)


@dataclass(frozen=True, eq=False, slots=True)
class Question:
    """A canonical case as a function of one op, and what ``byoc_supports`` answers.

    Attributes:
        kind: ``"static"``, ``"symbolic"`` or ``"data-dependent"``.
    """

    function: Function
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
    """Yields every canonical case that the core asks the backend about, with its answer.

    Each case comes in its own dtype, with symbolic sizes where the backend takes them, and the first case of each op in
    every dtype that the op takes.
    """
    for name, cases in op_cases().items():
        op = ops[name]
        for place, case in enumerate(cases):
            dtypes = case.dtypes(op) if place == 0 else (case.dtype,)
            variants = [("static", case.types(dtype)) for dtype in dtypes]
            for everywhere in (False, True):
                types = case.symbolic_types(everywhere=everywhere)
                if any(type_.symbols for type_ in types):
                    variants.append(("symbolic", types))
            for kind, types in dict.fromkeys(variants):
                question = _ask(handle, context, op, types, case.attrs, kind)
                if question is not None:
                    yield question


def _ask(
    handle: BackendHandle,
    context: CompileContext,
    op: OpDef,
    types: Sequence[TensorType],
    attrs: Mapping[str, object],
    kind: str,
) -> Question | None:
    """Gives the answer about one case; ``None`` where the op does not take it or the core does not ask."""
    try:
        function, binding = new_function(op, types, attrs)
    except IRTypeError:
        return None
    if core_refusal(binding, handle) is not None:
        return None
    kind = "data-dependent" if op.has_trait(Trait.DATA_DEPENDENT) else kind
    return Question(function, ask_hook(lambda: handle.supports(binding, context)), kind)


def lint_rules(handle: BackendHandle, context: CompileContext, questions: Sequence[Question]) -> Iterator[Finding]:
    """Yields what is wrong with the answers: one finding for each op and kind of fault."""
    found: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        if question.answer.fault:
            found.setdefault((question.binding.op.name, question.answer.fault), []).append(question)
    for (name, code), faulty in found.items():
        text = f"{faulty[0].answer.text}; in {len(faulty)} cases, the first {faulty[0]}"
        yield Finding(code, f"hook `byoc_supports`, op `{name}`", text)
    unknown = _ask(handle, context, _UNKNOWN, (TensorType((2, 3), "float32"),), {}, "static")
    if unknown is not None and unknown.answer.is_yes:
        text = "it takes an op that nobody has defined"
        hint = "Ask for the ops that codegen knows, by name: whatever else comes is not for this backend."
        yield Finding("accepts-everything", "hook `byoc_supports`", text, hint=hint)
