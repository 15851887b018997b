"""References to objects of a request by name: passes named in files, and names for objects without a name in files."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module

from byoc_core.driver.stages import ModulePass
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule

__all__ = ["PassReference", "object_name"]


@dataclass(frozen=True)
class PassReference:
    """A pass referenced by Python module and name, the form used in files: ``package.module:NAME``.

    Attributes:
        text: the reference as written in the file.
        transform: the pass.
    """

    text: str
    transform: ModulePass = field(compare=False, repr=False)

    @classmethod
    def load(cls, text: str, where: str) -> PassReference:
        """Import the pass. A class is called without arguments.

        Args:
            text: the reference.
            where: the place of the reference, for messages.

        Raises:
            OptionsError: the reference is malformed, cannot be imported, or names no pass.
        """
        module, colon, name = text.partition(":")
        if not (module and colon and name):
            raise OptionsError(where, "is not a reference to a pass", got=repr(text), expected="package.module:NAME")
        try:
            found = getattr(import_module(module), name)
            transform = found() if isinstance(found, type) else found
        except Exception as error:
            problem = f"cannot be imported: {type(error).__name__}: {error}"
            raise OptionsError(where, problem, got=repr(text)) from error
        if not callable(transform):
            raise OptionsError(where, "is not a pass", got=repr(text), expected="a callable from module to module")
        return cls(text, transform)

    @property
    def __name__(self) -> str:
        return self.text.partition(":")[2]

    def __call__(self, module: IRModule) -> IRModule:
        """Return the pass's result."""
        return self.transform(module)


def object_name(value: object) -> str:
    """Return ``module:name`` of a function, a class, or the class of an object: the same in every process."""
    if isinstance(value, PassReference):
        return value.text
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"
