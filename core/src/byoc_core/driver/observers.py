"""Observers of a compilation: callbacks for stages and passes, and a folder for printed modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.driver.stages import ModulePass, Stage
from byoc_core.transform import PassRun, Sequential

__all__ = ["Observers", "OnPass", "Progress"]

Progress = Callable[[str], None]
"""Called with the name of each stage at its beginning."""
OnPass = Callable[[PassRun], None]
"""Called after each pass with its name, the elapsed seconds and the resulting module."""


@dataclass(frozen=True)
class Observers:
    """The observers of a compilation.

    Attributes:
        progress: called with the name of each stage at the beginning of the stage.
        on_pass: called after each pass.
        dump: a folder for the printed module after every pass.
    """

    progress: Progress | None = None
    on_pass: OnPass | None = None
    dump: Path | None = None

    def begin(self, stage: Stage) -> None:
        """Report the beginning of a stage."""
        if self.progress is not None:
            self.progress(stage.value)

    def sequence(
        self,
        passes: Sequence[ModulePass],
        stage: Stage | None = None,
        *,
        verify: bool = True,
        verify_input: bool = True,
    ) -> Sequential:
        """Return the passes as a sequence with these observers.

        Args:
            passes: the passes.
            stage: names the folder in ``dump`` for the printed modules; without a stage nothing is printed.
            verify: whether the module is checked after each pass.
            verify_input: whether the module is checked before the first pass too.
        """
        folder = None if self.dump is None or stage is None else self.dump / stage.value
        return Sequential(passes, verify, verify_input, folder, self.on_pass)
