"""The drawing of memory plans by ``byoc plan``: instructions to the right, addresses upwards, as SVG 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from byoc_core.printable import to_printable

if TYPE_CHECKING:
    from byoc_core.vm.memory_map import MemoryBuffer, MemoryMap

__all__ = ["draw_memory_maps"]

_LEFT, _TOP, _HEIGHT, _FOOT = 110, 74, 420, 66
_MIN_WIDTH, _MAX_WIDTH, _MAX_COLUMN = 560, 4000, 60
_MAX_TICKS = 20
_CHARACTER = 7.3
"""The width of a character."""
_LINE = 14
_INK, _FAINT = "#222222", "#cccccc"
_COLOURS = {"intermediate": "#bde0fe", "workspace": "#ffd6a5"}
_LIVE, _BOUND = "#c1121f", "#1d6fa5"
_FONT = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def draw_memory_maps(title: str, maps: Sequence[MemoryMap]) -> str:
    """Return the text of an SVG file with the maps one below the other.

    A buffer is a rectangle from the first to the last instruction and over its addresses, with all facts in its
    ``title``. A red line shows the live bytes at each instruction, a dashed line the peak of these bytes.

    Args:
        title: the title of the drawing.
        maps: maps of known sizes.
    """
    widths = [min(_MAX_WIDTH, max(_MIN_WIDTH, _MAX_COLUMN * found.num_instructions)) for found in maps]
    panel = _TOP + _HEIGHT + _FOOT
    width, height = _LEFT + max(widths, default=_MIN_WIDTH) + 40, panel * max(len(maps), 1)
    root = ET.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img", width=str(width), height=str(height))
    root.set("viewBox", f"0 0 {width} {height}")
    root.set("font-family", _FONT)
    root.set("font-size", "12")
    ET.SubElement(root, "title").text = to_printable(title)
    ET.SubElement(root, "rect", width="100%", height="100%", fill="#ffffff")
    for index, (found, map_width) in enumerate(zip(maps, widths, strict=True)):
        group = ET.SubElement(root, "g", transform=f"translate({_LEFT}, {index * panel + _TOP})")
        _Panel(group, found, map_width).draw()
    ET.indent(root)
    return ET.tostring(root, encoding="unicode") + "\n"


class _Panel:
    """The drawing of a map: the origin is the upper left corner of the arena."""

    def __init__(self, group: ET.Element, found: MemoryMap, width: int) -> None:
        self._group = group
        self._map = found
        self._width = width
        self._column = width / max(found.num_instructions, 1)
        self._scale = _HEIGHT / (_static_size(found.arena_nbytes) or 1)

    def draw(self) -> None:
        """Draw heading, axes, buffers and lines."""
        self._draw_heading()
        self._draw_axes()
        for buffer in self._map.buffers:
            self._draw_buffer(buffer)
        self._draw_lines()

    def _draw_heading(self) -> None:
        arena, peak = _static_size(self._map.arena_nbytes), self._map.peak_nbytes or 0
        ratio = f", {arena / peak:.3f} times the bound" if peak else ""
        domain = "" if self._map.domain == "host" else f" in {self._map.domain}"
        if self._map.pool:
            limit = "" if self._map.limit_nbytes is None else f" of {self._map.limit_nbytes:,} bytes"
            domain += f", pool {self._map.pool}{limit}"
        self._text(0, -52, f"function {self._map.function}{domain}: arena {arena:,} bytes{ratio}", is_bold=True)
        x = 0.0
        for label, colour in (*_COLOURS.items(), ("live bytes", _LIVE), (f"lower bound {peak:,} bytes", _BOUND)):
            ET.SubElement(self._group, "rect", x=_number(x), y="-36", width="10", height="10", fill=colour)
            self._text(x + 15, -31, label)
            x += 15 + (len(label) + 3) * _CHARACTER

    def _draw_axes(self) -> None:
        arena, num_instructions = _static_size(self._map.arena_nbytes), self._map.num_instructions
        for part in range(5):
            address = arena * part // 4
            y = self._y(address)
            self._line((0, y), (self._width, y), _FAINT)
            self._text(-8, y, f"{address:,}", anchor="end")
        step = -(-num_instructions // _MAX_TICKS) or 1
        for instruction in range(0, num_instructions, step):
            x = instruction * self._column
            self._line((x, 0), (x, _HEIGHT), _FAINT)
            self._text(x + self._column / 2, _HEIGHT + 14, str(instruction), anchor="middle")
        self._text(self._width / 2, _HEIGHT + 32, "instruction", anchor="middle")
        self._text(-8, -14, "address", anchor="end")

    def _draw_buffer(self, buffer: MemoryBuffer) -> None:
        nbytes, offset = _static_size(buffer.nbytes), _static_size(buffer.offset)
        width, height = (buffer.last - buffer.first + 1) * self._column, nbytes * self._scale
        x, y = buffer.first * self._column, self._y(offset + nbytes)
        group = ET.SubElement(self._group, "g")
        writer = f", written by {to_printable(buffer.writer)}" if buffer.writer else ""
        ET.SubElement(group, "title").text = (
            f"{buffer.name}: {nbytes:,} bytes at {offset:,}, "
            f"instructions {buffer.first} to {buffer.last}, {buffer.purpose.value}{writer}"
        )
        rectangle = {"x": x, "y": y, "width": width, "height": height}
        ET.SubElement(
            group,
            "rect",
            {name: _number(value) for name, value in rectangle.items()},
            fill=_COLOURS[buffer.purpose.value],
            stroke=_INK,
        )
        lines = [line for line in (buffer.name, f"{nbytes:,}") if len(line) * _CHARACTER < width]
        lines = lines[: int(height // _LINE)]
        for index, line in enumerate(lines):
            middle = y + height / 2 + (index - (len(lines) - 1) / 2) * _LINE
            self._text(x + width / 2, middle, line, anchor="middle", parent=group)

    def _draw_lines(self) -> None:
        points = [
            f"{_number((instruction + side) * self._column)},{_number(self._y(nbytes))}"
            for instruction, nbytes in enumerate(self._map.live_nbytes())
            for side in (0, 1)
        ]
        line = {"points": " ".join(points), "fill": "none", "stroke": _LIVE, "stroke-width": "1.5"}
        ET.SubElement(self._group, "polyline", line)
        y = self._y(self._map.peak_nbytes or 0)
        self._line((0, y), (self._width, y), _BOUND, is_dashed=True)

    def _y(self, address: int) -> float:
        return _HEIGHT - address * self._scale

    def _line(
        self, start: tuple[float, float], stop: tuple[float, float], colour: str, *, is_dashed: bool = False
    ) -> None:
        ends = {"x1": start[0], "y1": start[1], "x2": stop[0], "y2": stop[1]}
        line = ET.SubElement(self._group, "line", {name: _number(value) for name, value in ends.items()}, stroke=colour)
        if is_dashed:
            line.set("stroke-dasharray", "5 4")

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        is_bold: bool = False,
        parent: ET.Element | None = None,
    ) -> None:
        """Write a line; ``y`` is the middle of the line."""
        group = self._group if parent is None else parent
        element = ET.SubElement(group, "text", x=_number(x), y=_number(y + 4), fill=_INK)
        element.set("text-anchor", anchor)
        if is_bold:
            element.set("font-weight", "bold")
        element.text = to_printable(text)


def _static_size(size: object) -> int:
    assert isinstance(size, int)
    return size


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
