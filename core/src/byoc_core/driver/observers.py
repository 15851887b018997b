"""Who watches a compilation: callables that hear of stages and passes, and a folder for printed modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from byoc_core.driver.stages import ModulePass, Stage
from byoc_core.transform import PassRun, Sequential

__all__ = ["Observers", "OnPass", "Progress"]

Progress = Callable[[str], None]
"""Called with the name of each stage as it begins."""
OnPass = Callable[[PassRun], None]
"""Called after each pass with its name, the seconds it took and the module it gave."""


@dataclass(frozen=True)
class Observers:
    """Who watches a compilation.

    Attributes:
        progress: called with the name of each stage as it begins.
        on_pass: called after each pass.
        dump: a folder that gets the printed module after every pass.
    """

    progress: Progress | None = None
    on_pass: OnPass | None = None
    dump: Path | None = None

    def begin(self, stage: Stage) -> None:
        """Tell that a stage begins."""
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
        """Return passes in a row that are watched.

        Args:
            passes: the passes.
            stage: names the folder in ``dump`` that gets the modules; without a stage they are not printed.
            verify: whether the module is checked after each pass.
            verify_input: whether it is checked before the first pass too.
        """
        folder = None if self.dump is None or stage is None else self.dump / stage.value
        return Sequential(passes, verify, verify_input, folder, self.on_pass)
