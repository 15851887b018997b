"""Serve a model over HTTP, with dynamic batching.

    python -m examples.serving.serve model.byoc --port 8000
    curl http://127.0.0.1:8000/run -H 'Content-Type: application/json' -d '{"inputs": {"x": [[1, 2, 3]]}}'

Requests waiting at the same time share a call of the model. SIGTERM stops the server: the port closes, open requests
are answered, and the exit status is 0. The routes: POST /run, GET /model, /health, /metrics.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import byoc_core
import uvicorn
from byoc_core.errors import ByocError

from examples.command_line import positive
from examples.rows import find_row_size
from examples.serving.application import MAX_BODY_NBYTES, create_application
from examples.serving.batching import BatchLimits

__all__ = ["main"]

GRACE_S = 30


def read_command_line(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m examples.serving.serve", description=__doc__, formatter_class=formatter)
    parser.add_argument(
        "model", help="an artifact (`byoc compile model.onnx`), or an ONNX model, compiled at first use"
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (%(default)s; 0.0.0.0 for all)")
    parser.add_argument("--port", type=int, default=8000, help="the port (%(default)s); 0 for a free port, see the log")
    parser.add_argument(
        "--max-rows",
        type=positive,
        default=32,
        metavar="N",
        help="the most rows of a request and of a call (%(default)s)",
    )
    parser.add_argument(
        "--max-wait-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="how long a request waits for others while the model is idle (%(default)s: not at all; requests arriving"
        " during a call share the next call)",
    )
    parser.add_argument(
        "--max-waiting",
        type=positive,
        default=1024,
        metavar="N",
        help="the most requests in the queue; further ones get status 503 (%(default)s)",
    )
    parser.add_argument(
        "--max-body-mib", type=float, default=MAX_BODY_NBYTES / 2**20, metavar="MIB", help="the most MiB of a request"
    )
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of a call (all processors)")
    parser.add_argument(
        "--warm-up",
        type=sizes_of_symbol,
        action="append",
        default=[],
        metavar="NAME=N,N,...",
        help="values of a size of the model to prepare before the port opens; give it once per size. By default every"
        " number of rows up to --max-rows, and 1 for other sizes",
    )
    parser.add_argument(
        "--allow-native", action="store_true", help="load native code of an artifact compiled by another user"
    )
    return parser.parse_args(arguments)


def sizes_of_symbol(text: str) -> tuple[str, list[int]]:
    """Return a name and sizes from ``NAME=N,N``.

    Raises:
        ValueError: the text has another form.
    """
    name, separator, numbers = text.partition("=")
    if not name or not separator:
        raise ValueError(text)
    return name, [int(number) for number in numbers.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Open and warm up the model, then serve until SIGTERM or SIGINT.

    Raises:
        SystemExit: 0 after a signal, 1 if the model cannot be served.
    """
    options = read_command_line(arguments)
    # uvicorn raises the signal again after its shutdown.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    limits = BatchLimits(options.max_rows, options.max_wait_ms / 1000, options.max_waiting)
    try:
        session = byoc_core.Session(
            options.model, num_threads=options.threads, casting="same_kind", allow_native=options.allow_native
        )
        application = create_application(session, limits, int(options.max_body_mib * 2**20))
        sizes = {find_row_size(session).symbol: list(range(1, limits.max_rows + 1)), **dict(options.warm_up)}
        session.warm_up(**sizes)
    except (ByocError, OSError, ValueError) as error:
        raise SystemExit(f"{options.model}: {error}") from error
    print(f"serving {session!r}", flush=True)
    uvicorn.run(application, host=options.host, port=options.port, access_log=False, timeout_graceful_shutdown=GRACE_S)


if __name__ == "__main__":
    main()
