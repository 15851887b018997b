"""The lines of stored plans, for writers and for checks; the native half reads the same (``csrc/runtime``).

A text begins with the lines ``byoc-dnnl-plans 1`` and ``library MAJOR MINOR PATCH ISA``. Each region follows::

    region NAME NUM_INPUTS NUM_OUTPUTS
    plan NUM_THREADS IS_SERIAL ARENA_NBYTES
    tensor CODE BITS NDIM SIZE...                      each argument, as in DLPack
    strided DTYPE RANK SIZE... STRIDE...               descriptions of memory, numbered from 0
    any DTYPE RANK SIZE...
    permuted DESC RANK AXIS...
    reshaped DESC RANK SIZE...
    part DESC RANK SIZE... START...
    queried PRIMITIVE QUERY INDEX
    primitive KIND PASSED POST_OPS SCALES ZERO_POINTS PARAMETER...
    constant DIGEST
    pack PRIMITIVE LOCATION DESC
    location argument INDEX DESC                       also `constant INDEX DESC`, `packed INDEX DESC`
    location arena OFFSET NBYTES DESC
    execute PRIMITIVE COUNT (ARGUMENT LOCATION FINGERPRINT)...
    check, compute, pool, quantise, multiply           `csrc/runtime/core_steps.c`
    end

A number names an object of an earlier line. ``-1`` in the place of a description: none. Floats are the numbers of their
bits. Lists of parameters have their length in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from byoc_core.errors import ArtifactError

__all__ = ["FIRST_LINE", "check_text", "cited_digests"]

_NAME, _VERSION = "byoc-dnnl-plans", 1
FIRST_LINE = f"{_NAME} {_VERSION}"

_MAX_NUMBER = 2**63 - 1
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[!-~]{1,255}")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_MEMORIES = ("argument", "constant", "packed", "arena")
_DESCS = ("strided", "any", "permuted", "reshaped", "part", "queried")
_COUNTS = {"check": 4, "pool": 17, "quantise": 8, "multiply": 12}
"""The count of the numbers of a line, where fixed."""


class _Line:
    """A line of a text: words, read in order."""

    def __init__(self, number: int, text: str) -> None:
        self._number, self._words = number, text.split(" ")

    def fail(self, problem: str) -> ArtifactError:
        """Return the error of a malformed line."""
        return ArtifactError(f"payload of byoc-dnnl, stored plans, line {self._number}", problem)

    def word(self, pattern: re.Pattern[str] = _WORD) -> str:
        """Return the next word."""
        if not self._words or not pattern.fullmatch(self._words[0]):
            raise self.fail("a word is missing or malformed")
        return self._words.pop(0)

    def number(self, least: int = 0, most: int = _MAX_NUMBER) -> int:
        """Return the next word as a number."""
        number = int(self.word(_NUMBER))
        if not least <= number <= most:
            raise self.fail("a number is out of range")
        return number

    def numbers(self, count: int, least: int = 0) -> list[int]:
        """Return the next words as numbers."""
        return [self.number(least) for _ in range(count)]

    def rest(self) -> list[int]:
        """Return all further words as numbers, negative ones too."""
        return [self.number(-_MAX_NUMBER) for _ in range(len(self._words))]

    def end(self) -> None:
        """Check that nothing follows."""
        if self._words:
            raise self.fail("has further words")


def check_text(text: bytes) -> None:
    """Check the lines of stored plans: their words, numbers, and the numbers of earlier objects. Cost: one pass.

    The native half checks the rest against oneDNN: sizes, layouts, and the memory of all steps.

    Raises:
        ArtifactError: a line is malformed; names the line.
    """
    lines = _lines(text)
    first = next(lines, None)
    if first is None or first.word() != _NAME or first.number() != _VERSION:
        raise _Line(1, "").fail("is no beginning of stored plans known to this byoc-dnnl")
    first.end()
    library = next(lines, None)
    if library is None or library.word() != "library":
        raise _Line(2, "").fail("names no library")
    library.numbers(4)
    library.end()
    num_tensors, plan = 0, None
    for line in lines:
        word = line.word()
        if plan is not None:
            plan = plan if plan.read(line, word) else None
        elif word == "region":
            line.word()
            num_tensors = sum(line.numbers(2))
        elif word == "plan" and num_tensors:
            line.numbers(3)
            plan = _PlanLines(num_tensors)
        else:
            raise line.fail("is neither a region nor a plan")
        line.end()
    if plan is not None:
        raise _Line(text.count(b"\n"), "").fail("is the last line, but the plan does not end")


def cited_digests(text: bytes) -> list[str]:
    """Return the digests of constants cited by a checked text, each once, in order."""
    lines = (line.partition(b" ") for line in text.split(b"\n"))
    return list(dict.fromkeys(rest.decode() for word, _, rest in lines if word == b"constant"))


def _lines(text: bytes) -> Iterator[_Line]:
    if text and not text.endswith(b"\n"):
        raise ArtifactError("payload of byoc-dnnl, stored plans", "do not end with a line")
    for number, line in enumerate(text.split(b"\n")[:-1], 1):
        yield _Line(number, line.decode("ascii", errors="replace"))


class _PlanLines:
    """The lines of a plan, checked in order."""

    def __init__(self, num_tensors: int) -> None:
        self._num_tensors, self._read_tensors = num_tensors, 0
        self._counts = dict.fromkeys(("desc", "primitive", "constant", "pack", "location"), 0)

    def read(self, line: _Line, word: str) -> bool:
        """Check a line; return whether the plan goes on."""
        if self._read_tensors < self._num_tensors:
            if word != "tensor":
                raise line.fail("is no tensor")
            line.numbers(2)
            line.numbers(line.number(), least=1)
            self._read_tensors += 1
            return True
        if word == "end":
            return False
        if word in _DESCS:
            self._read_desc(line, word)
        elif word == "primitive":
            line.word()
            line.rest()
            self._counts[word] += 1
        elif word == "constant":
            line.word(_DIGEST)
            self._counts[word] += 1
        elif word == "pack":
            self._read_objects(line, "primitive", "location", "desc")
            self._counts[word] += 1
        elif word == "location":
            self._read_location(line)
        elif word == "execute":
            self._read_execute(line)
        elif word == "compute":
            line.word()
            self._read_objects(line, "location", "location")
            line.numbers(2)
        elif word in _COUNTS:
            self._read_objects(line, "location")
            line.numbers(_COUNTS[word] - 1, least=-128)
        else:
            raise line.fail("has an unknown word")
        return True

    def _read_objects(self, line: _Line, *kinds: str) -> None:
        for kind in kinds:
            line.number(most=self._counts[kind] - 1)

    def _read_desc(self, line: _Line, word: str) -> None:
        if word == "queried":
            self._read_objects(line, "primitive")
            line.numbers(2)
        else:
            if word in ("strided", "any"):
                line.number(least=1)
            else:
                self._read_objects(line, "desc")
            rank = line.number(least=1)
            line.numbers(rank * (2 if word in ("strided", "part") else 1))
        self._counts["desc"] += 1

    def _read_location(self, line: _Line) -> None:
        memory = line.word()
        if memory not in _MEMORIES:
            raise line.fail("has an unknown kind of memory")
        if memory == "argument":
            line.number(most=self._num_tensors - 1)
        elif memory == "arena":
            line.numbers(2)
        else:
            self._read_objects(line, "constant" if memory == "constant" else "pack")
        self._read_objects(line, "desc")
        self._counts["location"] += 1

    def _read_execute(self, line: _Line) -> None:
        self._read_objects(line, "primitive")
        for _ in range(line.number(least=1)):
            line.number(least=1)
            self._read_objects(line, "location")
            line.number()
