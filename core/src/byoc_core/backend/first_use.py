"""Compiles functions for sizes that a call brings first: the backend's rules are asked again, then its codegen."""

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
    """Compiles functions of a backend of static shapes for sizes of calls.

    Codegen may count on what the rules of the backend let pass, so the rules are asked about these sizes too.

    Args:
        handle: the backend.
        functions: by the names under which they are called.
        context: of the module that they stand in.
    """

    def __init__(self, handle: BackendHandle, functions: Mapping[str, Function], context: CompileContext) -> None:
        self._handle = handle
        self._functions = functions
        self._context = context
        self._sized = SizedFunctions(())

    def __call__(self, name: str, sizes: Mapping[str, int]) -> RuntimeModule | SizesRefused:
        """Return the module of a function for sizes, or why the backend refuses them."""
        made = self._sized.at(self._functions[name], sizes)
        refusal = made if isinstance(made, Rejection) else rules_refusal(self._handle, made, self._context)
        if isinstance(made, Function) and refusal is None:
            result = self._handle.codegen([made], self._context)
            if result.module is not None:
                return result.module
            refusal = result.rejections[made.name]
        assert refusal is not None
        return SizesRefused(f"backend `{self._handle.name}` refuses it: {refusal.text}")


def rules_refusal(handle: BackendHandle, function: Function, context: CompileContext) -> Rejection | None:
    """Return why the rules of a backend do not take a function of known sizes; ``None`` where they do.

    They are not asked about a function that they never took: one that the user annotated, which has no source, or one
    of a backend that claims by an algorithm of its own.
    """
    if "source" not in function.attrs or handle.claims_by_itself:
        return None
    patterns = handle.patterns()
    for binding in function.bindings:
        if binding.op is COMPOSITE:
            named = [pattern for pattern in patterns if pattern.name == binding.attrs["name"]]
            answer = _composite_refusal(binding, named, context)
        else:
            told = handle.supports(binding, context)
            answer = told if isinstance(told, Rejection) else None
        if answer is not None:
            return answer
    return None


def _composite_refusal(
    binding: Binding, patterns: Sequence[CompositePattern], context: CompileContext
) -> Rejection | None:
    """Return why no pattern of a composite's name takes its body; ``None`` where one does, or none fits any more."""
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
        raise PatternError(f"pattern `{pattern.name}`", f"its check raised {type(error).__name__}: {error}") from error
