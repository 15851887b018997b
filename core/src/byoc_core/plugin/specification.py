"""Hook specifications as data: the hooks open to plugins, with the version of the core bringing each."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType

from byoc_core.plugin.markers import terms_of

__all__ = ["QUESTIONS", "HookArgument", "HookSpec", "read_hook_specs"]

QUESTIONS = ("Called by", "When", "How often", "Result", "If it raises")
"""The questions answered by the text of every hook, in this order; the pages of hooks are made from these labels."""

_EXAMPLE = "Example::\n"


@dataclass(frozen=True, slots=True)
class HookArgument:
    """An argument of a hook; an implementation may leave the argument out.

    Attributes:
        name: the spelling in implementations.
        type: the annotation.
        since: the version of byoc-core introducing the argument.
    """

    name: str
    type: str
    since: str


@dataclass(frozen=True, slots=True)
class HookSpec:
    """The specification of a hook.

    Attributes:
        group: the entry-point group of the implementing plugins.
        name: the hook's name.
        required: whether every plugin of the group must implement the hook.
        arguments: the arguments of a call.
        returns: the annotation of the result.
        since: the version of byoc-core introducing the hook.
        doc: caller, time, frequency, use of the result, consequence of an exception, an example.
        alternative: another hook of the group, accepted in place of a required hook; empty for none.
    """

    group: str
    name: str
    required: bool
    arguments: tuple[HookArgument, ...]
    returns: str
    since: str
    doc: str
    alternative: str = ""

    @property
    def signature(self) -> str:
        """The hook as the ``def`` line of an implementation with all arguments."""
        arguments = ", ".join(f"{argument.name}: {argument.type}" for argument in self.arguments)
        return f"def {self.name}({arguments}) -> {self.returns}"

    @property
    def summary(self) -> str:
        """The first line: the hook's purpose, and whether the hook is required."""
        return self.doc.partition("\n")[0]

    @property
    def answers(self) -> Mapping[str, str]:
        """The answers to :data:`QUESTIONS`, each in one line; unanswered questions are missing."""
        text = self.doc.partition(_EXAMPLE)[0]
        parts = re.split(rf"^({'|'.join(QUESTIONS)}): ", text, flags=re.MULTILINE)[1:]
        return MappingProxyType({q: " ".join(a.split()) for q, a in zip(parts[::2], parts[1::2], strict=True)})

    @property
    def example(self) -> str:
        """A complete implementation, imports included, as Python source."""
        return textwrap.dedent(self.doc.partition(_EXAMPLE)[2]).strip() + "\n"


def read_hook_specs(specs: ModuleType, group: str) -> tuple[HookSpec, ...]:
    """Return the hooks specified by a module, in source order.

    Args:
        specs: the module.
        group: the entry-point group of the implementing plugins.
    """
    found = []
    for name, function in vars(specs).items():
        terms = terms_of(function)
        if terms is None:
            continue
        signature = inspect.signature(function)
        arguments = tuple(
            HookArgument(key, str(parameter.annotation), terms.arguments_since.get(key, terms.since))
            for key, parameter in signature.parameters.items()
        )
        returns = str(signature.return_annotation)
        text = inspect.getdoc(function) or ""
        found.append(HookSpec(group, name, terms.required, arguments, returns, terms.since, text, terms.alternative))
    return tuple(found)
