"""A script for a fresh process: loads payloads, and detects parts unpickled, unmarshalled or executed.

Arguments: a request and the path of the reply, both JSON files; ``elsewhere`` writes the request, and runs the text of
this file. Only literal parts of a payload count: Python and its libraries may treat files of their own freely.
"""

import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

_MIN_NBYTES = 12
"""Shorter pieces occur in many payloads by chance."""

payloads: list[bytes] = []
found: list[str] = []
compiled_names: set[str] = set()


def _is_cited(data: object) -> bool:
    if isinstance(data, str):
        data = data.encode()
    if not isinstance(data, bytes | bytearray | memoryview) or len(data) < _MIN_NBYTES:
        return False
    return any(bytes(data) in payload for payload in payloads)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "marshal.loads" and _is_cited(arguments[0]):
        found.append("unmarshals")
    elif event == "compile" and _is_cited(arguments[0]):
        compiled_names.add(str(arguments[1]))
    elif event == "exec" and getattr(arguments[0], "co_filename", None) in compiled_names:
        found.append("executes")


class _WatchedUnpickler(pickle.Unpickler):
    def __init__(self, file: Any, **options: Any) -> None:
        if isinstance(file, io.BytesIO) and _is_cited(file.getvalue()):
            found.append("unpickles")
        super().__init__(file, **options)


def _load(file: Any, **options: Any) -> Any:
    return _WatchedUnpickler(file, **options).load()


def _loads(data: Any, /, **options: Any) -> Any:
    return _load(io.BytesIO(bytes(data)), **options)


def _main() -> None:
    request: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text())
    payloads.extend(bytes.fromhex(item["payload"]) for item in request["modules"])
    pickle.Unpickler, pickle.load, pickle.loads = _WatchedUnpickler, _load, _loads  # type: ignore[misc]
    sys.addaudithook(_watch)

    import numpy as np
    from byoc_core.dtypes import to_numpy
    from byoc_core.runtime import runtimes
    from byoc_core.runtime.hooks import LoadContext

    failure = ""
    try:
        for item, payload in zip(request["modules"], payloads, strict=True):
            constants = {
                digest: np.frombuffer(bytes.fromhex(b), to_numpy(dtype)).reshape(shape)
                for digest, (dtype, shape, b) in item["constants"].items()
            }
            runtimes().get(item["type_key"]).load(payload, LoadContext(constants, item["is_native"]))
    except Exception as error:  # noqa: BLE001 - reported by another test
        failure = f"{type(error).__name__}: {error}"
    Path(sys.argv[3]).write_text(json.dumps({"found": found, "failure": failure}))


if __name__ == "__main__":
    _main()
