"""Compilation for sizes first seen in a call: the backend's rules are asked again, then the codegen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import CompileContext, Rejection
from byoc_core.backend.sized_functions import SizedFunctions
from byoc_core.errors import ByocError, PatternError
from byoc_core.ir import COMPOSITE, Binding, Function
from byoc_core.pattern import CompositePattern, FunctionIndex, Match, find_matches
from byoc_core.runtime.module import RuntimeModule
from byoc_core.runtime.specialised import SizesRefused

__all__ = ["FirstUse", "rules_refusal"]


class FirstUse:
    """A compiler of functions for the sizes of calls, for a backend of static shapes.

    Codegen may rely on the checks of the backend's rules, so the rules are asked about these sizes too.

    Args:
        handle: the backend.
        functions: by the names used in calls.
        context: the context of the functions' module.
    """

    def __init__(self, handle: BackendHandle, functions: Mapping[str, Function], context: CompileContext) -> None:
        self._handle = handle
        self._functions = functions
        self._context = context
        self._sized = SizedFunctions(())

    def __call__(self, name: str, sizes: Mapping[str, int]) -> RuntimeModule | SizesRefused:
        """Return the module of a function for sizes, or the reason of the backend's refusal."""
        sized = self._sized.at(self._functions[name], sizes)
        refusal = sized if isinstance(sized, Rejection) else rules_refusal(self._handle, sized, self._context)
        if isinstance(sized, Function) and refusal is None:
            result = self._handle.codegen([sized], self._context)
            if result.modules:
                return result.modules[0]
            refusal = result.rejections[sized.name]
        assert refusal is not None
        return SizesRefused(f"backend `{self._handle.name}` refuses the sizes: {refusal.text}")


def rules_refusal(handle: BackendHandle, function: Function, context: CompileContext) -> Rejection | None:
    """Return why the backend's rules refuse a function of known sizes; ``None`` if accepted.

    The rules are not asked about functions never claimed by rules: functions annotated by the user (without source),
    and functions of a backend claiming by its own algorithm.
    """
    if "source" not in function.attrs or handle.claims_by_itself:
        return None
    patterns = handle.patterns()
    for binding in function.bindings:
        if binding.op is COMPOSITE:
            named = [pattern for pattern in patterns if pattern.name == binding.attrs["name"]]
            answer = _composite_refusal(binding, named, context)
        else:
            support = handle.supports(binding, context)
            answer = support if isinstance(support, Rejection) else None
        if answer is not None:
            return answer
    return None


def _composite_refusal(
    binding: Binding, patterns: Sequence[CompositePattern], context: CompileContext
) -> Rejection | None:
    """Return why no pattern of a composite's name accepts the body; ``None`` if a pattern does, or if none matches."""
    body = binding.regions[0]
    index = FunctionIndex(body, context.constants)
    refusal = None
    for pattern in patterns:
        for root in body.bindings:
            for match in find_matches(pattern.pattern, root, index):
                if len(match.bindings) == len(body.bindings):
                    refusal = _ask(pattern, match)
                    if refusal is None:
                        return None
    return refusal


def _ask(pattern: CompositePattern, match: Match) -> Rejection | None:
    try:
        return pattern.check(match) if pattern.check is not None else None
    except (ByocError, MemoryError):
        raise
    except Exception as error:
        raise PatternError(f"pattern `{pattern.name}`", f"the check raised {type(error).__name__}: {error}") from error
