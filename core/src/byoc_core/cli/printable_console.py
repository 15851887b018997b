"""Rich consoles without terminal control sequences, except rich's own styles."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook
from rich.segment import Segment

from byoc_core.printable import to_printable_lines

__all__ = ["PrintableHook"]


class PrintableHook(RenderHook):
    """A hook making all console output printable, after the layout and before styles become escape sequences."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return printable replacements for renderables."""
        return [_Printable(renderable) for renderable in renderables]


class _Printable:
    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Segment]:
        for segment in console.render(self._renderable, options):
            text, style, control = segment
            yield segment if control else Segment(to_printable_lines(text), style)
