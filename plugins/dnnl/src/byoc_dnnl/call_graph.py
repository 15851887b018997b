"""The calls of a function as a graph: the maker and the readers of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.runtime.graph.document import GraphFunction

from byoc_dnnl.calls import Call, calls_of

__all__ = ["CallGraph"]


class CallGraph:
    """The calls of a function, with the maker and the readers of each value.

    Args:
        function: the function; the nodes have no bodies.

    Attributes:
        calls: the calls, in order.
        result_arguments: the numbers of the arguments for each result, inputs counted first, by value.
        last_readers: the result of the last call reading each value.
    """

    def __init__(self, function: GraphFunction) -> None:
        self.calls = calls_of(function)
        self._makers = {call.output: call for call in self.calls}
        self._readers: dict[int, list[Call]] = {}
        for call in self.calls:
            for id_ in dict.fromkeys(call.inputs):
                self._readers.setdefault(id_, []).append(call)
        self.last_readers: Mapping[int, int] = {id_: calls[-1].output for id_, calls in self._readers.items()}
        self.result_arguments: dict[int, list[int]] = {}
        for number, (_, id_) in enumerate(function.outputs):
            self.result_arguments.setdefault(id_, []).append(len(function.inputs) + number)
        self._followers: dict[int, Call | None] = {}

    def maker(self, id_: int) -> Call | None:
        """Return the call producing a value; ``None`` for inputs and constants."""
        return self._makers.get(id_)

    def readers(self, id_: int) -> Sequence[Call]:
        """Return the calls reading a value."""
        return self._readers.get(id_, ())

    def is_result(self, id_: int) -> bool:
        """Return whether a value is a result of the region."""
        return id_ in self.result_arguments

    def is_read(self, id_: int) -> bool:
        """Return whether a value is read by a call, or is a result of the region."""
        return id_ in self._readers or self.is_result(id_)

    def is_read_once(self, id_: int) -> bool:
        """Return whether a value is read by a single call, and is no result of the region."""
        return len(self.readers(id_)) == 1 and not self.is_result(id_)

    def follower(self, call: Call) -> Call | None:
        """Return the only reader of a call's result, or ``None``."""
        id_ = call.output
        if id_ not in self._followers:
            readers = self.readers(id_)
            is_followed = len(readers) == 1 and readers[0].inputs.count(id_) == 1 and not self.is_result(id_)
            self._followers[id_] = readers[0] if is_followed else None
        return self._followers[id_]
