"""Count the calls, copies and arena bytes of the light models' programs with and without views between regions.

    python -m benchmarks.zoo.count_views light_squeezenet light_densenet121 light_shufflenet
    python -m benchmarks.zoo.count_views --backend ccompiler --allow nn.conv2d light_densenet121

Without views between regions, the model is compiled with all views inside regions. No clock is read.
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
    """Return the numbers of calls and copies in a program's functions, and the bytes of the arenas."""
    calls = [i for f in executable.program.functions for i in f.code if isinstance(i, Call)]
    return {
        "calls": sum(call.kind is not CallKind.BUILTIN for call in calls),
        "copies": sum(call.kind is CallKind.BUILTIN and call.callee == Builtin.COPY for call in calls),
        "arena": sum(evaluate_at_one(function.arena_nbytes) for function in executable.program.functions),
    }


def count_both(module: IRModule, backends: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, dict[str, int]]:
    """Return :func:`count` of a module compiled with views kept in regions, and of the module as usually compiled.

    Args:
        module: the module to compile.
        backends: names of backends.
        allowed: globs of the ops allowed for backends; all ops if empty.
    """
    options = PartitionOptions(allow={name: list(allowed) for name in backends} if allowed else {})
    with patch.object(PeelViews, "__call__", lambda _, function: function):
        inside = byoc_core.build(module, backends, partition_options=options)
    return {"inside": count(inside), "between": count(byoc_core.build(module, backends, partition_options=options))}


def main() -> None:
    """Print the counts of each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="names of models; all light models by default")
    parser.add_argument("--backend", action="append", default=[], help="a backend in front of the host")
    parser.add_argument("--allow", action="append", default=[], help="a glob of ops for backends; all by default")
    arguments = parser.parse_args()
    for name in arguments.models or list_light_models():
        counted = count_both(byoc_core.from_onnx(load_light_model(name)), arguments.backend, arguments.allow)
        for location, counts in counted.items():
            figures = ", ".join(f"{key} {value:,}" for key, value in counts.items())
            print(f"{name} {'+'.join([*arguments.backend, 'host'])}, views {location} regions: {figures}")


if __name__ == "__main__":
    main()
