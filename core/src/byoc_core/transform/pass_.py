"""What a pass is, and how passes run one after the other."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from byoc_core.errors import InternalError, VerifyError
from byoc_core.ir import IRModule, verify

__all__ = ["Pass", "PassRun", "Sequential", "pass_name"]


class Pass(ABC):
    """A function from module to module; its fields are its options.

    The input is never changed, and unchanged functions are shared with the result.
    """

    @abstractmethod
    def __call__(self, module: IRModule) -> IRModule:
        """Gives the transformed module."""


@dataclass(frozen=True, slots=True)
class PassRun:
    """One run of a pass: its name, the seconds it took (checks apart), and the module it gave."""

    name: str
    seconds: float
    module: IRModule


def pass_name(transform: Callable[[IRModule], IRModule]) -> str:
    """Gives the name of a pass or of a plain function used as one."""
    return getattr(transform, "__name__", None) or type(transform).__name__


@dataclass(frozen=True)
class Sequential(Pass):
    """Runs passes in order and checks the module after each.

    Attributes:
        passes: passes, or plain functions from module to module.
        verify: whether to run the verifier on the input and after every pass that changed something.
        dump: a folder that gets the printed module after every pass (``00_input.py``, ``01_<pass>.py``, ...).
        on_pass: called after every pass, before its result is checked.
    """

    passes: Sequence[Callable[[IRModule], IRModule]]
    verify: bool = True
    dump: Path | None = None
    on_pass: Callable[[PassRun], None] | None = field(default=None, repr=False)

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the module after all passes.

        Raises:
            VerifyError: the input breaks an IR law.
            InternalError: a pass made a module that breaks an IR law; names the pass.
        """
        if self.verify:
            verify(module)
        self._write(0, "input", module)
        for number, transform in enumerate(self.passes, start=1):
            before = module
            start = time.perf_counter()
            module = transform(before)
            if self.on_pass is not None:
                self.on_pass(PassRun(pass_name(transform), time.perf_counter() - start, module))
            self._write(number, pass_name(transform), module)
            if self.verify and module is not before:
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
