"""The calls of a function as a graph: the maker and the readers of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.runtime.graph.document import GraphFunction

from byoc_dnnl.calls import Call, Wiring, calls_of, kinds_of

__all__ = ["CallGraph"]


class CallGraph:
    """The calls of a function, with the maker and the readers of each value.

    Args:
        function: the function; the nodes have no bodies.
        wiring: the wiring of the function, if known.

    Attributes:
        calls: the calls, in order.
        result_arguments: the numbers of the arguments for each result, inputs counted first, by value.
        constants: locations of constants by type and value, found by earlier plans of the same wiring.
    """

    def __init__(self, function: GraphFunction, wiring: Wiring | None = None) -> None:
        self._wiring = wiring or Wiring(function, kinds_of(function))
        self.calls = calls_of(function, self._wiring)
        self.result_arguments: Mapping[int, Sequence[int]] = self._wiring.result_arguments
        self.constants = self._wiring.constants
        self._readers: dict[int, Sequence[Call]] = {}

    def maker(self, id_: int) -> Call | None:
        """Return the call producing a value; ``None`` for inputs and constants."""
        number = self._wiring.makers.get(id_)
        return None if number is None else self.calls[number]

    def readers(self, id_: int) -> Sequence[Call]:
        """Return the calls reading a value."""
        found = self._readers.get(id_)
        if found is None:
            found = self._readers[id_] = [self.calls[number] for number in self._wiring.readers.get(id_, ())]
        return found

    def last_reader(self, id_: int) -> int:
        """Return the result of the last call reading a value; -1 without readers."""
        numbers = self._wiring.readers.get(id_)
        return self.calls[numbers[-1]].output if numbers else -1

    def is_result(self, id_: int) -> bool:
        """Return whether a value is a result of the region."""
        return id_ in self.result_arguments

    def is_read(self, id_: int) -> bool:
        """Return whether a value is read by a call, or is a result of the region."""
        return id_ in self._wiring.readers or self.is_result(id_)

    def is_read_once(self, id_: int) -> bool:
        """Return whether a value is read by a single call, and is no result of the region."""
        return len(self._wiring.readers.get(id_, ())) == 1 and not self.is_result(id_)

    def follower(self, call: Call) -> Call | None:
        """Return the only reader of a call's result, or ``None``."""
        number = self._wiring.followers[self._wiring.makers[call.output]]
        return None if number is None else self.calls[number]
