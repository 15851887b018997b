"""A script for a fresh process: loads an artifact and calls its functions, with the compile side out of reach.

Arguments: a request and the path of the reply, both JSON files; ``elsewhere`` writes the request, and runs the text of
this file. Nothing of the kit is imported here, because the kit needs the compile side.
"""

import json
import sys
from pathlib import Path
from typing import Any


def _main() -> None:
    request: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text())
    for blocked in request["blocked"]:
        sys.modules[blocked] = None  # type: ignore[assignment]

    import byoc_core
    import numpy as np
    from byoc_core.dtypes import to_numpy
    from byoc_core.runtime import runtimes

    reply: dict[str, Any] = {"results": {}}
    try:
        for type_key in request["runtimes"]:
            runtimes().get(type_key)
    except Exception as error:  # noqa: BLE001 - reported by another test
        reply["unopened"] = f"{type(error).__name__}: {error}"
    else:
        vm = byoc_core.VirtualMachine(byoc_core.load(request["artifact"], allow_native=True))
        for function, inputs in request["calls"].items():
            arrays = [np.frombuffer(bytes.fromhex(b), to_numpy(d)).reshape(shape).copy() for d, shape, b in inputs]
            results = vm[function](*arrays)
            reply["results"][function] = [
                [array.dtype.name, array.shape, array.tobytes().hex()]
                for array in (results if isinstance(results, tuple) else (results,))
            ]
    Path(sys.argv[3]).write_text(json.dumps(reply))


if __name__ == "__main__":
    _main()
