"""The ASGI application: a session behind four routes.

::

    POST /run       tensors in, tensors out: JSON, npz or npy, by Content-Type and Accept
    GET  /model     the inputs and outputs
    GET  /health    200 once requests are answered
    GET  /metrics   figures for Prometheus

Errors are JSON, ``{"error": TEXT}``: 4xx for the client's faults, with the text of the session if the inputs do not fit
the model, and 503 with ``Retry-After`` if too many requests wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import byoc_core
from byoc_core.errors import ByocError, CallError, ExecutionError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from examples.serving.batching import BatchLimits, QueueFullException, SessionBatcher, TooManyRowsError
from examples.serving.tensors import JSON, NPY, NPZ, BodyError, read_body, write_body

__all__ = ["create_application"]

MAX_BODY_NBYTES = 8 << 20


class Metrics:
    """The figures of a service."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.responses = Counter("byoc_responses", "Responses of /run", ["status"], registry=self.registry)
        self.in_progress = Gauge("byoc_requests_in_progress", "Requests waiting or running", registry=self.registry)
        buckets = [2**power for power in range(13)]
        self.rows = Histogram("byoc_call_rows", "Rows of a call of the model", buckets=buckets, registry=self.registry)
        self.seconds = Histogram("byoc_call_seconds", "Seconds of a call of the model", registry=self.registry)

    def observe_call(self, num_rows: int, seconds: float) -> None:
        """Count a call of the model."""
        self.rows.observe(num_rows)
        self.seconds.observe(seconds)


class Service:
    """The routes of a session.

    Args:
        session: the session.
        limits: the limits of batching.
        max_body_nbytes: the most bytes of a request's body, and of the arrays inside.

    Raises:
        ValueError: the model cannot be batched.
    """

    def __init__(self, session: byoc_core.Session, limits: BatchLimits, max_body_nbytes: int) -> None:
        self.metrics = Metrics()
        self.batcher = SessionBatcher(session, limits, self.metrics.observe_call)
        self._session, self._max_body_nbytes = session, max_body_nbytes
        self._dtypes = {value.name: value.dtype for value in session.inputs}

    async def run(self, request: Request) -> Response:
        """Answer a request for results."""
        status = 500
        try:
            with self.metrics.in_progress.track_inprogress():
                response = await self._respond(request)
            status = response.status_code
        finally:
            self.metrics.responses.labels(status).inc()
        return response

    async def _respond(self, request: Request) -> Response:
        media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        try:
            answer_type = self._answer_type(request.headers.get("accept", "*/*"), media_type)
            body = await self._receive(request)
            feeds = await run_in_threadpool(read_body, media_type, body, self._dtypes, self._max_body_nbytes)
            outputs = await self.batcher.answer(feeds)
            content = await run_in_threadpool(write_body, answer_type, outputs)
        except BodyError as error:
            return _error(error.status, error)
        except TooManyRowsError as error:
            return _error(413, error)
        except ClientDisconnect:
            return _error(400, "the client left before the end of the body")
        except (CallError, ExecutionError) as error:  # the latter for values, such as an index outside an axis
            return _error(422, error)
        except ByocError as error:
            return _error(500, error)
        except QueueFullException:
            response = _error(503, "too many requests wait")
            response.headers["Retry-After"] = "1"
            return response
        return Response(content, media_type=answer_type)

    def _answer_type(self, accept: str, media_type: str) -> str:
        """Return the media type of an answer: the first accepted, or the request's own.

        Raises:
            BodyError: no accepted type is known.
        """
        accepted = [item.partition(";")[0].strip().lower() for item in accept.split(",")]
        for name in accepted:
            if name in (JSON, NPZ, NPY):
                return name
            if name in ("*/*", "application/*"):
                return NPZ if media_type == NPY and len(self._session.outputs) > 1 else media_type
        raise BodyError(406, f"accept `{accept}`: there are {JSON}, {NPY} and {NPZ}")

    async def _receive(self, request: Request) -> bytes:
        """Return the body.

        Raises:
            BodyError: the body is too large.
        """
        chunks, nbytes = [], 0
        async for chunk in request.stream():
            nbytes += len(chunk)
            if nbytes > self._max_body_nbytes:
                raise BodyError(413, f"the body has more than {self._max_body_nbytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    async def model(self, _request: Request) -> Response:
        """Describe the inputs and outputs."""
        session = self._session
        described = {
            kind: [{"name": v.name, "dtype": v.dtype, "shape": [*map(str, v.shape or ())]} for v in values]
            for kind, values in (("inputs", session.inputs), ("outputs", session.outputs))
        }
        return JSONResponse({**described, "rows": self.batcher.row_size.symbol, "backends": [*session.backends]})

    async def health(self, _request: Request) -> Response:
        """Tell that requests are answered: the port is opened after the warm-up."""
        return JSONResponse({"status": "ok"})

    async def show_metrics(self, _request: Request) -> Response:
        """Return the figures as text for Prometheus."""
        return Response(generate_latest(self.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    @asynccontextmanager
    async def lifespan(self, _application: Starlette) -> AsyncIterator[None]:
        """Stop the batcher once the server has answered all requests."""
        yield
        await self.batcher.stop()


def create_application(
    session: byoc_core.Session, limits: BatchLimits | None = None, max_body_nbytes: int = MAX_BODY_NBYTES
) -> Starlette:
    """Return the application of a session.

    Args:
        session: the session; ``casting="same_kind"`` lets JSON numbers become any number type of the model.
        limits: the limits of batching.
        max_body_nbytes: the most bytes of a request's body.

    Raises:
        ValueError: the model cannot be batched.
    """
    service = Service(session, limits or BatchLimits(), max_body_nbytes)
    routes = [
        Route("/run", service.run, methods=["POST"]),
        Route("/model", service.model),
        Route("/health", service.health),
        Route("/metrics", service.show_metrics),
    ]
    return Starlette(routes=routes, lifespan=service.lifespan)


def _error(status: int, problem: object) -> JSONResponse:
    return JSONResponse({"error": str(problem)}, status)
