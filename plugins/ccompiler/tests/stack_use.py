"""The stack used by exported C, from the frames and calls written down by gcc."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["StackUse", "measure_stack"]

_FLAG = "-fcallgraph-info=su"
_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*\\n(\d+) bytes \(([^)]+)\)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_BOUNDED = ("static", "dynamic,bounded")


@dataclass(frozen=True, slots=True)
class StackUse:
    """The stack used by a function.

    Attributes:
        frame_nbytes: the largest frame.
        chain_nbytes: the frames of the deepest chain of calls.
        foreign: the called functions without source, outside the figures.
    """

    frame_nbytes: int
    chain_nbytes: int
    foreign: frozenset[str]


def measure_stack(folder: Path, sources: Sequence[str], function: str, *flags: str) -> StackUse:
    """Compile sources by gcc, and return the stack used by a function.

    Raises:
        ValueError: a chain of calls has no bound: recursion, a call by pointer, or a frame of unknown size.
    """
    command = ["gcc", "-std=c11", "-fno-stack-protector", *flags, "-I.", "-c", *sources]
    done = subprocess.run([*command, _FLAG], cwd=folder, capture_output=True, text=True, check=False)
    if _FLAG in done.stderr:
        pytest.skip(f"this gcc knows no {_FLAG}")
    assert done.returncode == 0, done.stderr
    texts = [(folder / source).with_suffix(".ci").read_text() for source in sources]
    frames: dict[str, int] = {}
    for name, nbytes, kind in (node for text in texts for node in _NODE.findall(text)):
        if kind not in _BOUNDED:
            raise ValueError(f"{name}: a frame of unknown size")
        frames[name] = int(nbytes)
    calls: dict[str, list[str]] = {name: [] for name in frames}
    for caller, callee in (edge for text in texts for edge in _EDGE.findall(text)):
        calls[caller].append(callee)
    depths: dict[str, int] = {}

    def depth(name: str, callers: tuple[str, ...]) -> int:
        if name in callers or name == "__indirect_call":
            raise ValueError(f"{' -> '.join((*callers, name))}: a chain without bound")
        if name not in depths:
            inner = (depth(callee, (*callers, name)) for callee in calls.get(name, ()))
            depths[name] = frames.get(name, 0) + max(inner, default=0)
        return depths[name]

    chain_nbytes = depth(function, ())
    return StackUse(
        max(frames[name] for name in depths if name in frames), chain_nbytes, frozenset(depths.keys() - frames.keys())
    )
