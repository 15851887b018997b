"""Dynamic batching: requests waiting at the same time share calls of a session.

The library async-batcher has the queue, its limit, the waiting time and the futures. This module adds the tensors: the
requests able to share a call, the joined inputs, and the rows of each answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
from async_batcher.batcher import AsyncBatcher
from async_batcher.exceptions import QueueFullException
from byoc_core.errors import ByocError

from examples.rows import RowSize, find_row_size

__all__ = ["BatchLimits", "QueueFullException", "Request", "SessionBatcher", "TooManyRowsError", "plan_calls"]

Array = npt.NDArray[Any]
Answer = Mapping[str, Array]


class TooManyRowsError(Exception):
    """A request has more rows than a call may have."""


@dataclass(frozen=True)
class BatchLimits:
    """The limits of batching.

    Attributes:
        max_rows: the most rows of a call.
        max_wait_s: the time to wait for further requests while no call runs, in seconds. With 0, only requests
            arriving during a call share the next call.
        max_waiting: the most requests waiting for a call; further requests are refused.
    """

    max_rows: int = 32
    max_wait_s: float = 0.0
    max_waiting: int = 1024


@dataclass(frozen=True, eq=False)
class Request:
    """The inputs of a request.

    Attributes:
        feeds: the inputs by name.
        num_rows: the rows.
        key: equal for requests able to share a call: the same dtypes, the same further sizes, and the same values of
            inputs shared by all rows. A request at odds with the model shares with none.
    """

    feeds: Mapping[str, Array]
    num_rows: int
    key: Hashable

    @staticmethod
    def of(feeds: Mapping[str, Array], names: Sequence[str], row_inputs: frozenset[str]) -> Request:
        """Return the request of some feeds.

        Args:
            feeds: arrays by name.
            names: the inputs of the model.
            row_inputs: the inputs with a value for each row.
        """
        fronts = {feeds[name].shape[:1] for name in row_inputs if name in feeds}
        if feeds.keys() != set(names) or len(fronts) != 1 or fronts == {()}:
            return Request(feeds, 1, object())
        parts = [
            (feeds[name].dtype.str, feeds[name].shape[1:], None)
            if name in row_inputs
            else (feeds[name].dtype.str, feeds[name].shape, feeds[name].tobytes())
            for name in names
        ]
        return Request(feeds, fronts.pop()[0], tuple(parts))


class SessionBatcher(AsyncBatcher):
    """A queue of requests for a session.

    Args:
        session: the session; see :func:`examples.rows.find_row_size` for the models that can be batched.
        limits: the limits.
        observe: called after each call of the session with the number of rows and the seconds.

    Raises:
        ValueError: the model cannot be batched.
    """

    def __init__(
        self,
        session: byoc_core.Session,
        limits: BatchLimits,
        observe: Callable[[int, float], object] = lambda _rows, _seconds: None,
    ) -> None:
        # A request has a row or more, so no more than `max_rows` requests fit in a call. The library wants two or more.
        super().__init__(
            max_batch_size=max(2, limits.max_rows),
            max_queue_time=limits.max_wait_s,
            max_queue_size=limits.max_waiting,
        )
        self.row_size: RowSize = find_row_size(session)
        self._session, self._limits, self._observe = session, limits, observe
        self._names = tuple(value.name for value in session.inputs)
        self._output_names = tuple(value.name for value in session.outputs)

    async def answer(self, feeds: Mapping[str, Array]) -> Answer:
        """Return the outputs of the rows of a request, by name.

        Raises:
            QueueFullException: too many requests wait.
            TooManyRowsError: the request has more rows than a call may have.
            ByocError: the inputs do not fit the model, or the model failed on the inputs.
        """
        request = Request.of(feeds, self._names, self.row_size.inputs)
        if request.num_rows > self._limits.max_rows:
            problem = f"{request.num_rows} rows are too many; at most {self._limits.max_rows} in a request"
            raise TooManyRowsError(problem)
        # Without the shield, a caller that gives up would leave a cancelled future in the batch, and the library, on
        # setting its result, would leave all later requests of the batch without an answer.
        found: Answer = await asyncio.shield(asyncio.ensure_future(self.process(request)))
        return found

    async def process_batch(self, batch: list[Request]) -> list[Answer | ByocError]:
        """Return the answer of each request: its outputs or its error."""
        answers: dict[int, Answer | ByocError] = {}
        for call in plan_calls(batch, self._limits.max_rows):
            answers.update(zip(call, await self._run([batch[index] for index in call]), strict=True))
        return [answers[index] for index in range(len(batch))]

    async def _run(self, requests: Sequence[Request]) -> list[Answer | ByocError]:
        """Run requests in a call; if the call fails, run each alone, so that only requests at fault fail."""
        start = time.perf_counter()
        failure: ByocError | None = None
        try:
            found = await asyncio.wrap_future(self._session.run_async(None, self._join(requests)))
        except ByocError as error:
            failure = error
        self._observe(sum(request.num_rows for request in requests), time.perf_counter() - start)
        if failure is not None:
            if len(requests) == 1:
                return [failure]
            return [answer for request in requests for answer in await self._run([request])]
        stops = np.cumsum([request.num_rows for request in requests])[:-1]
        parts = [np.split(array, stops) for array in found]
        return [dict(zip(self._output_names, arrays, strict=True)) for arrays in zip(*parts, strict=True)]

    def _join(self, requests: Sequence[Request]) -> Mapping[str, Array]:
        first = requests[0].feeds
        if len(requests) == 1:
            return first
        return {
            name: np.concatenate([request.feeds[name] for request in requests])
            if name in self.row_size.inputs
            else array
            for name, array in first.items()
        }


def plan_calls(requests: Sequence[Request], max_rows: int) -> list[list[int]]:
    """Return the indices of the requests of each call: equal keys, and at most ``max_rows`` rows together.

    The requests of a key stay in order. A request with more rows has a call for itself.
    """
    calls: list[list[int]] = []
    open_calls: dict[Hashable, tuple[list[int], int]] = {}
    for index, request in enumerate(requests):
        call, num_rows = open_calls.get(request.key, ([], max_rows))
        if num_rows + request.num_rows > max_rows:
            call, num_rows = [], 0
            calls.append(call)
        call.append(index)
        open_calls[request.key] = call, num_rows + request.num_rows
    return calls
