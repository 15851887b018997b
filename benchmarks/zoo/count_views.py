"""Counts what the light models' programs hold with and without views between regions: calls, copies, arena.

    python -m benchmarks.zoo.count_views light_squeezenet light_densenet121 light_shufflenet
    python -m benchmarks.zoo.count_views --backend ccompiler --allow nn.conv2d light_densenet121

Without views: as compiled where nothing leaves a region. No clock is read.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from unittest.mock import patch

import byoc_core
from byoc_core.artifact import Executable
from byoc_core.dims import evaluate_at_one
from byoc_core.ir import IRModule
from byoc_core.partitioning import PartitionOptions, PeelViews
from byoc_core.vm.instructions import Builtin, Call, CallKind

from benchmarks.zoo.light import list_light_models, load_light_model

__all__ = ["count", "count_both"]


def count(executable: Executable) -> dict[str, int]:
    """Gives how many calls and copies a program's functions hold, and the bytes of their arenas."""
    calls = [i for f in executable.program.functions for i in f.code if isinstance(i, Call)]
    return {
        "calls": sum(call.kind is not CallKind.BUILTIN for call in calls),
        "copies": sum(call.kind is CallKind.BUILTIN and call.callee == Builtin.COPY for call in calls),
        "arena": sum(evaluate_at_one(function.arena_nbytes) for function in executable.program.functions),
    }


def count_both(module: IRModule, backends: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, dict[str, int]]:
    """Gives :func:`count` of a module as it is compiled where views stay in regions, and as it is compiled.

    Args:
        module: what to compile.
        backends: names.
        allowed: globs of the ops that backends may take; all where none is given.
    """
    options = PartitionOptions(allow={name: list(allowed) for name in backends} if allowed else {})
    with patch.object(PeelViews, "__call__", lambda _, given: given):
        inside = byoc_core.build(module, backends, partition_options=options)
    return {"inside": count(inside), "between": count(byoc_core.build(module, backends, partition_options=options))}


def main() -> None:
    """Prints a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names; all light models where none is given")
    parser.add_argument("--backend", action="append", default=[], help="a backend in front of the host")
    parser.add_argument("--allow", action="append", default=[], help="a glob of ops that backends may take; all")
    arguments = parser.parse_args()
    for name in arguments.models or list_light_models():
        counted = count_both(byoc_core.from_onnx(load_light_model(name)), arguments.backend, arguments.allow)
        for what, counts in counted.items():
            figures = ", ".join(f"{key} {value:,}" for key, value in counts.items())
            print(f"{name} {'+'.join([*arguments.backend, 'host'])}, views {what} regions: {figures}")


if __name__ == "__main__":
    main()
