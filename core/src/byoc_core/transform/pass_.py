"""The base class of passes, and sequences of passes."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import IRModule, verify

__all__ = ["Pass", "PassRun", "Sequential", "pass_name"]


class Pass(ABC):
    """A function from module to module; its fields are its options.

    The input is never changed, and unchanged functions are shared with the result.
    """

    verifies_result: ClassVar[bool] = False
    """Whether the pass runs the verifier on its result, making further verification unnecessary."""

    @abstractmethod
    def __call__(self, module: IRModule) -> IRModule:
        """Return the transformed module."""


@dataclass(frozen=True, slots=True)
class PassRun:
    """A run of a pass: the name of the pass, the seconds taken (without checks), and the resulting module."""

    name: str
    seconds: float
    module: IRModule


def pass_name(transform: Callable[[IRModule], IRModule]) -> str:
    """Return the name of a pass or of a plain function used as a pass."""
    return getattr(transform, "__name__", None) or type(transform).__name__


@dataclass(frozen=True)
class Sequential(Pass):
    """A sequence of passes, with a check of the module after each.

    Attributes:
        passes: passes, or plain functions from module to module.
        verify: whether to run the verifier on the input and after every pass with a changed module.
        verify_input: ``False`` if the input is verified already, for example as the result of another pipeline.
        dump: a folder for the printed module after every pass (``00_input.py``, ``01_<pass>.py``, ...).
        on_pass: called after every pass, before its result is checked.
    """

    passes: Sequence[Callable[[IRModule], IRModule]]
    verify: bool = True
    verify_input: bool = True
    dump: Path | None = None
    on_pass: Callable[[PassRun], None] | None = field(default=None, repr=False)

    def __call__(self, module: IRModule) -> IRModule:
        """Return the module after all passes.

        Raises:
            VerifyError: the input breaks an IR law.
            InternalError: the result of a pass breaks an IR law; names the pass.
        """
        if self.verify and self.verify_input:
            verify(module)
        self._write(0, "input", module)
        for number, transform in enumerate(self.passes, start=1):
            before = module
            start = time.perf_counter()
            module = transform(before)
            if self.on_pass is not None:
                self.on_pass(PassRun(pass_name(transform), time.perf_counter() - start, module))
            self._write(number, pass_name(transform), module)
            if self.verify and module is not before and not getattr(transform, "verifies_result", False):
                try:
                    verify(module)
                except VerifyError as error:
                    where = f"pass `{pass_name(transform)}`"
                    raise InternalError(where, f"made an invalid module: {error}") from error
        return module

    def _write(self, number: int, name: str, module: IRModule) -> None:
        if self.dump is None:
            return
        self.dump.mkdir(parents=True, exist_ok=True)
        safe = re.sub(r"\W+", "_", name)
        (self.dump / f"{number:02}_{safe}.py").write_text(str(module), encoding="utf-8")
