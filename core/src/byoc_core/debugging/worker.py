"""The process behind :class:`byoc_core.debugging.isolation.IsolatedRunner`: reads requests, runs regions, replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from byoc_core.debugging.running import LocalRunner
from byoc_core.driver import Compiler
from byoc_core.dtypes import to_numpy
from byoc_core.ir import ConstantStore, IRModule
from byoc_core.isolation import serve
from byoc_core.runtime.array_files import load_arrays, save_arrays
from byoc_core.script import parse

__all__ = ["main"]


def main(setup: Mapping[str, Any]) -> None:
    """Serve requests until the session ends.

    Args:
        setup: names of backends, and the backends' options.
    """
    serve(lambda: _Worker(setup["backends"], setup["options"]).answer)


class _Worker:
    def __init__(self, names: list[str], options: Mapping[str, Mapping[str, object]]) -> None:
        compiler = Compiler()
        self._runner = LocalRunner([compiler.backends.get(name) for name in names], options, compiler.backends)
        self._ops = compiler.ops_for(names)
        self._modules: dict[str, IRModule] = {}
        self._constants = ConstantStore()
        self._read: set[str] = set()

    def answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        region = str(request["region"])
        if region not in self._modules:
            for file in request["constants"]:
                if file not in self._read:
                    self._read.add(file)
                    for array in load_arrays(file).values():
                        self._constants.add(array)
            text = Path(region).read_text(encoding="utf-8")
            self._modules[region] = parse(text, constants=self._constants, ops=self._ops)
        inputs = list(load_arrays(request["inputs"]).values())
        results = [(tuple(shape), to_numpy(dtype)) for shape, dtype in request["results"]]
        outcome = self._runner.run(self._modules[region], request["name"], inputs, results)
        arrays = [array for run in outcome.runs for array in run]
        save_arrays(request["outputs"], {str(index): array for index, array in enumerate(arrays)})
        return {"runs": len(outcome.runs), "findings": [asdict(finding) for finding in outcome.findings]}
