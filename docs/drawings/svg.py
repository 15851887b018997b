"""A canvas for boxes, arrows and text, written as SVG 1.1: the same bytes on every machine.

Lengths are pixels, the origin is the upper left corner, and text has a fixed width (`CHARACTER`) per character.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree as ET

__all__ = ["CHARACTER", "COLOURS", "GREY", "LINE", "Box", "Canvas"]

CHARACTER = 7.3
"""The width of a character of normal text."""

LINE = 16
"""The distance of two lines of text."""

COLOURS = ("#ffd6a5", "#bde0fe", "#cdeac0", "#e2cfea", "#ffc8dd")
"""Fills for backends, values and stages."""

GREY = "#e6e6e6"
INK = "#222222"
FAINT = "#777777"


@dataclass(frozen=True)
class Box:
    """A rectangle of the canvas."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """The horizontal centre."""
        return self.x + self.width / 2

    @property
    def middle(self) -> float:
        """The vertical centre."""
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width


class Canvas:
    """A drawing; the size is the size of the content with a margin.

    Args:
        title: the title for readers without the picture.
        description: the content in a sentence, for the same readers.
    """

    def __init__(self, title: str, description: str) -> None:
        self._title, self._description = title, description
        self._elements: list[ET.Element] = []
        self._right = self._bottom = 0.0

    def rectangle(
        self, box: Box, fill: str = "none", *, stroke: str = INK, is_dashed: bool = False, radius: float = 4
    ) -> Box:
        """Draw a rectangle."""
        attributes = {"x": box.x, "y": box.y, "width": box.width, "height": box.height, "rx": radius}
        self._add("rect", attributes, fill=fill, stroke=stroke, **_dashes(is_dashed))
        self._grow(box.right, box.bottom)
        return box

    def text(
        self,
        x: float,
        y: float,
        lines: Sequence[str],
        *,
        anchor: str = "middle",
        colour: str = INK,
        is_bold: bool = False,
    ) -> None:
        """Write lines; ``y`` is the centre of the first line, and ``anchor`` is start, middle or end."""
        for number, line in enumerate(lines):
            element = self._add("text", {"x": x, "y": y + number * LINE + 4}, fill=colour)
            element.set("text-anchor", anchor)
            if is_bold:
                element.set("font-weight", "bold")
            element.text = line
            width = len(line) * CHARACTER
            self._grow(x + width * {"start": 1, "middle": 0.5, "end": 0}[anchor], y + number * LINE + LINE / 2)

    def box(self, x: float, y: float, lines: Sequence[str], fill: str = "#ffffff", *, width: float = 0) -> Box:
        """Draw a box around lines, with the first line in bold; ``x`` is the centre and ``y`` the upper edge."""
        width = max(width, max(map(len, lines)) * CHARACTER + 16)
        box = Box(x - width / 2, y, width, len(lines) * LINE + 8)
        self.rectangle(box, fill)
        self.text(x, y + LINE / 2 + 4, lines[:1], is_bold=True)
        self.text(x, y + LINE * 1.5 + 4, lines[1:])
        return box

    def arrow(self, *points: tuple[float, float], colour: str = INK, is_dashed: bool = False) -> None:
        """Draw an arrow along points."""
        for (x1, y1), (x2, y2) in pairwise(points):
            self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2}, stroke=colour, **_dashes(is_dashed))
        (x1, y1), (x2, y2) = points[-2:]
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        along, across = ((x2 - x1) / length, (y2 - y1) / length), (-(y2 - y1) / length, (x2 - x1) / length)
        head = [(x2, y2)]
        head += [(x2 - 8 * along[0] + side * across[0], y2 - 8 * along[1] + side * across[1]) for side in (-3.5, 3.5)]
        self._add("polygon", {}, points=" ".join(f"{_number(x)},{_number(y)}" for x, y in head), fill=colour)
        for x, y in points:
            self._grow(x, y)

    def line(self, *points: tuple[float, float], colour: str = FAINT, is_dashed: bool = False) -> None:
        """Draw a line along points."""
        for (x1, y1), (x2, y2) in pairwise(points):
            self._add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2}, stroke=colour, **_dashes(is_dashed))
        for x, y in points:
            self._grow(x, y)

    def to_svg(self) -> str:
        """Return the text of the file."""
        width, height = _number(self._right + 12), _number(self._bottom + 12)
        root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", width=width, height=height)
        root.set("viewBox", f"0 0 {width} {height}")
        root.set("font-family", "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace")
        root.set("font-size", "12")
        ET.SubElement(root, "title").text = self._title
        ET.SubElement(root, "desc").text = self._description
        ET.SubElement(root, "rect", width="100%", height="100%", fill="#ffffff")
        root.extend(self._elements)
        ET.indent(root)
        return ET.tostring(root, encoding="unicode") + "\n"

    def _add(self, tag: str, lengths: dict[str, float], **attributes: str) -> ET.Element:
        element = ET.Element(tag, {name: _number(value) for name, value in lengths.items()}, **attributes)
        self._elements.append(element)
        return element

    def _grow(self, x: float, y: float) -> None:
        self._right, self._bottom = max(self._right, x), max(self._bottom, y)


def _dashes(is_dashed: bool) -> dict[str, str]:
    return {"stroke-dasharray": "5 4"} if is_dashed else {}


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
