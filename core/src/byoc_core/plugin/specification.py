"""Hook specifications as data: what plugins may implement, and since which version of the core."""

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
"""What the text of every hook answers, in this order."""

_EXAMPLE = "Example::\n"


@dataclass(frozen=True, slots=True)
class HookArgument:
    """One argument of a hook; an implementation may leave it out.

    Attributes:
        name: as implementations spell it.
        type: its annotation.
        since: the version of byoc-core that brought it.
    """

    name: str
    type: str
    since: str


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One hook.

    Attributes:
        group: the entry-point group of the plugins that implement it.
        name: its name.
        required: whether every plugin of the group must implement it.
        arguments: what it is called with.
        returns: the annotation of what it gives.
        since: the version of byoc-core that brought it.
        doc: who calls it, when, how often, what becomes of the result, what if it raises, an example.
    """

    group: str
    name: str
    required: bool
    arguments: tuple[HookArgument, ...]
    returns: str
    since: str
    doc: str

    @property
    def signature(self) -> str:
        """The hook as the ``def`` line of an implementation that takes everything."""
        arguments = ", ".join(f"{argument.name}: {argument.type}" for argument in self.arguments)
        return f"def {self.name}({arguments}) -> {self.returns}"

    @property
    def summary(self) -> str:
        """The first line: what the hook gives, and whether it is required."""
        return self.doc.partition("\n")[0]

    @property
    def answers(self) -> Mapping[str, str]:
        """The answers to :data:`QUESTIONS`, each in one line; a question that the text does not answer is missing."""
        text = self.doc.partition(_EXAMPLE)[0]
        parts = re.split(rf"^({'|'.join(QUESTIONS)}): ", text, flags=re.MULTILINE)[1:]
        return MappingProxyType({q: " ".join(a.split()) for q, a in zip(parts[::2], parts[1::2], strict=True)})

    @property
    def example(self) -> str:
        """A complete implementation, imports included, as Python source."""
        return textwrap.dedent(self.doc.partition(_EXAMPLE)[2]).strip() + "\n"


def read_hook_specs(specs: ModuleType, group: str) -> tuple[HookSpec, ...]:
    """Gives the hooks that a module specifies, in the order of its text.

    Args:
        specs: the module.
        group: the entry-point group of the plugins that implement them.
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
        found.append(HookSpec(group, name, terms.required, arguments, returns, terms.since, text))
    return tuple(found)
