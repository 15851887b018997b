"""Batching inside a process: requests share calls, fail alone, and are refused when too many wait."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import CallError, ExecutionError
from starlette.requests import Request as HttpRequest

from examples.rows import find_row_size
from examples.serving.application import Service
from examples.serving.batching import BatchLimits, QueueFullException, Request, SessionBatcher, plan_calls
from examples.serving.tests.summing_model import NUM_ENTRIES, write_artifact

# async-batcher calls a function of asyncio that Python 3.14 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:'asyncio.iscoroutinefunction' is deprecated:DeprecationWarning")

Feeds = Mapping[str, npt.NDArray[Any]]
SHIFT = np.arange(8, dtype=np.float32)
GENERATOR = np.random.default_rng(0)


class GatedSession(byoc_core.Session):
    """A session with calls waiting for a gate."""

    gate: threading.Event

    def run(self, *arguments: Any, **named: Any) -> list[Any]:
        assert self.gate.wait(60)
        return super().run(*arguments, **named)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("model") / "sums.byoc")


@pytest.fixture
def session(artifact: Path) -> GatedSession:
    found = GatedSession(artifact, casting="same_kind")
    found.gate = threading.Event()
    return found


def draw(num_rows: int, length: int) -> Feeds:
    return {"ids": GENERATOR.integers(0, NUM_ENTRIES, (num_rows, length)), "shift": SHIFT}


def answer_together(
    session: GatedSession, requests: Sequence[Feeds], limits: BatchLimits
) -> tuple[list[Any], list[int]]:
    """Return the answers or errors of requests, and the rows of each call; the first request runs by itself."""
    calls: list[int] = []

    async def run() -> list[Any]:
        batcher = SessionBatcher(session, limits, lambda num_rows, _: calls.append(num_rows))
        tasks = [asyncio.create_task(batcher.answer(requests[0]))]
        await asyncio.sleep(0.3)  # the first call waits at the gate
        tasks += [asyncio.create_task(batcher.answer(feeds)) for feeds in requests[1:]]
        await asyncio.sleep(0.1)
        session.gate.set()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.stop()
        return answers

    return asyncio.run(run()), calls


def expect_equal(session: GatedSession, feeds: Feeds, answer: Feeds) -> None:
    expected = session(**feeds)
    assert answer.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(answer[name], array)


def test_requests_of_the_same_sizes_share_calls(session: GatedSession) -> None:
    requests = [draw(num_rows, length) for num_rows, length in ((1, 3), (2, 3), (1, 5), (3, 3), (4, 5), (3, 3))]
    answers, calls = answer_together(session, requests, BatchLimits(max_rows=8, max_wait_s=0.05))
    for feeds, answer in zip(requests, answers, strict=True):
        expect_equal(session, feeds, answer)
    assert calls == [1, 8, 5]


def test_requests_with_other_shared_inputs_do_not_share_calls(session: GatedSession) -> None:
    requests = [draw(1, 3), draw(1, 3), {**draw(1, 3), "shift": SHIFT + 1}]
    answers, calls = answer_together(session, requests, BatchLimits())
    for feeds, answer in zip(requests, answers, strict=True):
        expect_equal(session, feeds, answer)
    assert calls == [1, 1, 1]


def test_a_request_that_fails_does_not_fail_its_batch(session: GatedSession) -> None:
    bad_index = {"ids": np.array([[0, NUM_ENTRIES, 0]]), "shift": SHIFT}
    bad_names = {"ids": draw(1, 3)["ids"]}
    bad_rank = {"ids": draw(1, 3)["ids"][0], "shift": SHIFT}
    requests = [draw(1, 3), draw(2, 3), bad_index, draw(1, 3), bad_names, bad_rank]
    answers, calls = answer_together(session, requests, BatchLimits())
    for index in (0, 1, 3):
        expect_equal(session, requests[index], answers[index])
    for index, kind in ((2, ExecutionError), (4, CallError), (5, CallError)):
        with pytest.raises(kind) as expected:
            session.run(None, requests[index])
        assert isinstance(answers[index], kind)
        assert str(answers[index]) == str(expected.value)
    assert calls[:2] == [1, 4], "the bad index was in a call with its neighbours"


def test_callers_that_give_up_do_not_take_their_batch_along(session: GatedSession) -> None:
    requests = [draw(1, 3) for _ in range(4)]

    async def run() -> list[Any]:
        batcher = SessionBatcher(session, BatchLimits(max_wait_s=0.2))
        tasks = [asyncio.create_task(batcher.answer(feeds)) for feeds in requests]
        await asyncio.sleep(0.1)
        tasks[1].cancel()
        session.gate.set()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)

    answers = asyncio.run(run())
    assert isinstance(answers[1], asyncio.CancelledError)
    for index in (0, 2, 3):
        expect_equal(session, requests[index], answers[index])


def test_requests_beyond_the_queue_are_refused(session: GatedSession) -> None:
    async def run() -> list[Any]:
        batcher = SessionBatcher(session, BatchLimits(max_wait_s=0, max_waiting=2))
        running: Awaitable[Any] = asyncio.create_task(batcher.answer(draw(1, 3)))
        await asyncio.sleep(0.3)
        waiting = [asyncio.create_task(batcher.answer(draw(1, 3))) for _ in range(3)]
        await asyncio.sleep(0.1)
        session.gate.set()
        return await asyncio.gather(running, *waiting, return_exceptions=True)

    answers = asyncio.run(run())
    assert [isinstance(answer, QueueFullException) for answer in answers] == [False, False, False, True]
    assert all(len(answer["scores"]) == 1 for answer in answers[:3])


def test_the_refusal_of_the_queue_is_status_503(session: GatedSession) -> None:
    body = json.dumps({"inputs": {"ids": [[1, 2]], "shift": [0] * 8}}).encode()

    def request() -> HttpRequest:
        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        return HttpRequest({"type": "http", "method": "POST", "path": "/run", "headers": []}, receive)

    async def run() -> list[Any]:
        service = Service(session, BatchLimits(max_wait_s=0, max_waiting=1), 1 << 20)
        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(service.run(request())))
            await asyncio.sleep(0.3)
        session.gate.set()
        return await asyncio.gather(*tasks)

    *answered, refused = asyncio.run(run())
    assert [response.status_code for response in answered] == [200, 200]
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert json.loads(refused.body) == {"error": "too many requests wait"}


def test_calls_are_planned_in_order_and_within_the_rows() -> None:
    requests = [
        Request({}, num_rows, key) for num_rows, key in ((3, "a"), (3, "b"), (2, "a"), (9, "b"), (1, "a"), (4, "b"))
    ]
    assert plan_calls(requests, 5) == [[0, 2], [1], [3], [4], [5]]
    assert plan_calls([], 5) == []


@pytest.mark.parametrize(
    ("signature", "problem"),
    [
        ("float[n, 2] x) => (float[2, n] y", "inputs and outputs have no symbolic first size in common"),
        ("float[2, n] x) => (float[n, 2] y", "inputs and outputs have no symbolic first size in common"),
        ("float[2, 2] x) => (float[2, 2] y", "inputs and outputs have no symbolic first size in common"),
        ("float[n, n] x) => (float[n, n] y", "the size n counts the rows, and stands elsewhere than in front"),
    ],
)
def test_models_without_rows_are_refused(signature: str, problem: str) -> None:
    import onnx

    text = f'<ir_version: 8, opset_import: ["" : 17]> net ({signature}) {{ y = Transpose(x) }}'
    session = byoc_core.Session(onnx.parser.parse_model(text), [])
    with pytest.raises(ValueError, match=problem):
        find_row_size(session)
