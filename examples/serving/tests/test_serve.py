"""The server as a process: many requests at once, bad requests, and SIGTERM."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ByocError
from prometheus_client.parser import text_string_to_metric_families

from examples.serving.tensors import JSON, NPY, NPZ, write_body
from examples.serving.tests.summing_model import NUM_ENTRIES, ROWS, write_artifact

ROOT = Path(__file__).parents[3]
GENERATOR = np.random.default_rng(0)
SHIFT = np.arange(8, dtype=np.float32)
Feeds = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Response:
    status: int
    media_type: str
    body: bytes

    def tensors(self) -> dict[str, npt.NDArray[Any]]:
        if self.media_type == JSON:
            return {name: np.asarray(value) for name, value in json.loads(self.body)["outputs"].items()}
        with np.load(io.BytesIO(self.body)) as loaded:
            return dict(loaded)


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str

    def send(self, path: str, body: bytes | None = None, media_type: str = JSON, accept: str = "*/*") -> Response:
        headers = {"Content-Type": media_type, "Accept": accept}
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return Response(response.status, response.headers.get_content_type(), response.read())
        except urllib.error.HTTPError as error:
            return Response(error.code, error.headers.get_content_type(), error.read())

    def figure(self, name: str) -> float:
        text = self.send("/metrics").body.decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
        return sum(float(sample.value) for sample in samples)


@contextmanager
def serve(model: Path, *options: str) -> Iterator[Server]:
    """Start a server on a free port, and stop it if the test did not."""
    command = [sys.executable, "-m", "examples.serving.serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert process.stderr is not None
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if found := re.search(r"running on (http://\S+)", line):
                yield Server(process, found[1])
                return
        raise AssertionError("".join(log))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("model") / "sums.byoc")


@pytest.fixture(scope="module")
def session(artifact: Path) -> byoc_core.Session:
    return byoc_core.Session(artifact, casting="same_kind")


@pytest.fixture(scope="module")
def server(artifact: Path) -> Iterator[Server]:
    with serve(artifact, "--max-wait-ms", "50", "--max-body-mib", "0.25", "--warm-up", "n=1,8") as found:
        yield found


def draw(num_rows: int, length: int) -> Feeds:
    return {"ids": GENERATOR.integers(0, NUM_ENTRIES, (num_rows, length)), "shift": SHIFT}


def to_json(feeds: Feeds) -> bytes:
    return json.dumps({"inputs": {name: array.tolist() for name, array in feeds.items()}}).encode()


def test_concurrent_requests_share_calls_and_get_their_own_answers(server: Server, session: byoc_core.Session) -> None:
    requests = [draw(1 + index % 3, 4 + index % 2) for index in range(96)]
    num_calls, num_rows = server.figure("byoc_call_rows_count"), server.figure("byoc_call_rows_sum")

    def send(index: int) -> Response:
        if index % 4 == 0:
            return server.send("/run", to_json(requests[index]), accept=NPZ if index % 8 else JSON)
        return server.send("/run", write_body(NPZ, requests[index]), NPZ)

    with ThreadPoolExecutor(16) as pool:
        responses = list(pool.map(send, range(len(requests))))
    assert {response.status for response in responses} == {200}
    assert {response.media_type for response in responses} == {JSON, NPZ}
    for feeds, response in zip(requests, responses, strict=True):
        expected = session(**feeds)
        found = response.tensors()
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    assert server.figure("byoc_call_rows_sum") - num_rows == sum(len(feeds["ids"]) for feeds in requests)
    assert 0 < server.figure("byoc_call_rows_count") - num_calls < len(requests) / 2


@pytest.mark.parametrize(
    "feeds",
    [
        {"ids": np.zeros((1, 3), np.int64)},
        {"ids": np.zeros((1, 3), np.int64), "shift": SHIFT, "more": SHIFT},
        {"ids": np.zeros((1, 3)), "shift": SHIFT},
        {"ids": np.zeros(3, np.int64), "shift": SHIFT},
        {"ids": np.zeros((1, 3), np.int64), "shift": SHIFT[:7]},
        {"ids": np.full((1, 3), NUM_ENTRIES), "shift": SHIFT},
    ],
    ids=["missing", "unknown", "dtype", "rank", "size", "index"],
)
def test_inputs_that_do_not_fit_get_the_text_of_the_session(
    server: Server, session: byoc_core.Session, feeds: Feeds
) -> None:
    with pytest.raises(ByocError) as expected:
        session.run(None, feeds)
    response = server.send("/run", write_body(NPZ, feeds), NPZ)
    assert response.status == 422
    assert json.loads(response.body) == {"error": str(expected.value)}


def test_other_faults_of_clients_have_their_own_statuses(server: Server) -> None:
    good = to_json(draw(1, 3))
    assert server.send("/run", good).status == 200
    assert server.send("/run", b"{").status == 400
    assert server.send("/other", good).status == 404
    assert server.send("/run").status == 405
    assert server.send("/run", good, accept="image/png").status == 406
    assert server.send("/run", good, accept=NPY).status == 406
    assert server.send("/run", bytes(300_000)).status == 413
    assert server.send("/run", good, "text/plain").status == 415
    many = server.send("/run", to_json(draw(33, 3)))
    assert many.status == 413
    assert json.loads(many.body) == {"error": "33 rows are too many; at most 32 in a request"}


def test_the_model_is_described_and_the_server_is_healthy(server: Server) -> None:
    described = json.loads(server.send("/model").body)
    assert described["rows"] == "n"
    assert described["inputs"][0] == {"name": "ids", "dtype": "int64", "shape": ["n", "length"]}
    assert [output["name"] for output in described["outputs"]] == ["scores", "sums"]
    assert (server.send("/health").status, json.loads(server.send("/health").body)) == (200, {"status": "ok"})


def test_sigterm_answers_open_requests_and_ends_with_0(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "rows.byoc", ROWS)
    session = byoc_core.Session(artifact)
    inputs = [GENERATOR.integers(-9, 10, (1, 8)).astype(np.float32) for _ in range(6)]
    with serve(artifact, "--max-wait-ms", "3000") as server, ThreadPoolExecutor(len(inputs)) as pool:
        answers = [pool.submit(server.send, "/run", write_body(NPY, {"x": x}), NPY) for x in inputs]
        deadline = time.monotonic() + 60
        while server.figure("byoc_requests_in_progress") < len(inputs):
            assert time.monotonic() < deadline
        server.process.send_signal(signal.SIGTERM)
        for x, answer in zip(inputs, answers, strict=True):
            response = answer.result()
            assert (response.status, response.media_type) == (200, NPY)
            np.testing.assert_array_equal(np.load(io.BytesIO(response.body)), session(x)["scores"])
        assert server.process.wait(60) == 0


def test_models_that_cannot_be_served_are_an_error_of_a_line(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "fixed.byoc", ROWS.replace("[n, ", "[2, "))
    command = [sys.executable, "-m", "examples.serving.serve", str(artifact)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"{artifact}: inputs and outputs have no symbolic first size in common: `scores: float32[2, 4]`."
        " Export the model with a dynamic batch\n"
    )
