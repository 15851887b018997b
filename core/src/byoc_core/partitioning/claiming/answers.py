"""The answers of backends about single ops, kept for the time of one policy."""

from __future__ import annotations

from byoc_core.backend import BackendHandle, CompileContext
from byoc_core.ir import Binding
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.pattern import Rejection, Support

__all__ = ["SupportAnswers"]


class SupportAnswers:
    """The answers of the hook ``byoc_supports``; each backend is asked once about each distinct op.

    The answer about an op counts for all equal ops (:meth:`OpNumbers.exact_number`). A refusal with the
    name of a value in the text counts for the same op alone: the text would be wrong for an op with other names. A
    failure of the hook does likewise, so each op refused by the failure is on record.

    The options of each backend, and the constants by digest, must be the same for all calls.

    Attributes:
        numbers: the distinct ops.
    """

    def __init__(self) -> None:
        self.numbers = OpNumbers()
        self._answers: dict[tuple[str, int], Support | Rejection] = {}
        self._own: dict[tuple[str, int], tuple[Binding, Rejection]] = {}

    def supports(self, handle: BackendHandle, binding: Binding, context: CompileContext) -> Support | Rejection:
        """Return the answer of a backend about an op.

        Raises:
            HookError: the backend's hook failed, and failures of the backend are not contained.
        """
        key = (handle.name, self.numbers.exact_number(binding))
        answer = self._answers.get(key)
        if answer is not None:
            return answer
        own_key = (handle.name, id(binding))
        own = self._own.get(own_key)
        if own is not None:
            return own[1]
        answer = handle.supports(binding, context)
        if isinstance(answer, Rejection) and _concerns_one_op(answer, binding):
            self._own[own_key] = (binding, answer)
        else:
            self._answers[key] = answer
        return answer


def _concerns_one_op(rejection: Rejection, binding: Binding) -> bool:
    """Return whether a refusal of an op says nothing about equal ops."""
    values = (*binding.operands, *binding.results)
    names = (value.name for value in values if hasattr(value, "name"))
    return rejection.code == "hook-failed" or any(name in rejection.text for name in names)
