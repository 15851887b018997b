"""The contents and needs of an artifact as tables and as JSON, for ``byoc inspect``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from byoc_core.dims import Dim, symbols_of
from byoc_core.errors import OptionsError, near_names
from byoc_core.reporting.shares import apportion, counted_sizes

if TYPE_CHECKING:
    from byoc_core.artifact import InspectResult
    from byoc_core.runtime.module import TensorSpec
    from byoc_core.vm.state_summary import StateSummary

__all__ = ["artifact_to_data", "print_artifact"]


def print_artifact(
    artifact: InspectResult, requested_sizes: Mapping[str, int], *, program: bool, members: bool
) -> None:
    """Print an artifact.

    Args:
        artifact: the artifact.
        requested_sizes: the counted values of symbolic sizes; others count as 1.
        program: whether to print the VM program too.
        members: whether to print the files inside too.

    Raises:
        OptionsError: a size affects neither the memory of a call nor the FLOPs.
    """
    from byoc_core.cli.console import new_table, open_console
    from byoc_core.cli.signatures import add_signature, new_signature_table
    from byoc_core.cli.states import states_text
    from byoc_core.plugin.absence import describe_claim
    from byoc_core.reporting.text import render_report

    sizes, report = _count(artifact, requested_sizes)
    console = open_console()
    native = "yes, and trusted" if artifact.is_trusted else "yes: loading needs --allow-native"
    for label, text in (
        ("file", f"{artifact.path} ({artifact.nbytes:,} bytes)"),
        ("digest", artifact.digest),
        ("format", f"version {artifact.format_version}, made by byoc-core {artifact.core_version}"),
        ("constants", f"{artifact.num_constants} ({artifact.constants_nbytes:,} bytes)"),
        ("native code", native if artifact.is_native else "no"),
    ):
        console.print(f"{label:<12} {text}", soft_wrap=True)
    console.print()

    functions = new_signature_table()
    for name, signature in artifact.functions.items():
        add_signature(functions, name, signature)
    console.print(functions)
    if text := states_text(artifact.states):
        console.print(f"{text}\n", soft_wrap=True)
    parts = ("constants", "modules", "arena", "inputs", "outputs", "needed")
    counted = "".join(f", {name} = {size}" for name, size in sizes.items())
    memory = new_table(f"Bytes in memory for a call{counted}", "function", *parts, right=parts)
    for name, symbolic_need in artifact.memory.items():
        memory_need = symbolic_need.at(sizes)
        shared = (memory_need.constants_nbytes, memory_need.payload_nbytes)
        row = (
            *shared,
            memory_need.arena_nbytes,
            memory_need.input_nbytes,
            memory_need.output_nbytes,
            memory_need.needed_nbytes,
        )
        memory.add_row(name, *map(_size, row))
    console.print(memory)

    if artifact.modules:
        modules = new_table("Modules", "runtime", "functions", "bytes", "native code", right=("bytes",))
        for module in artifact.modules:
            names = ", ".join(module.functions)
            modules.add_row(module.type_key, names, f"{module.nbytes:,}", "yes" if module.is_native else "no")
        console.print(modules)
    if artifact.runtimes:
        needs = new_table("Needs", "runtime", "distribution", "version", "installed")
        for need in artifact.runtimes:
            needs.add_row(need.type_key, need.distribution, need.version, "yes" if need.is_installed else "no")
        console.print(needs)
        for need in artifact.runtimes:
            if not need.is_installed:
                advice = describe_claim("the artifact", need.distribution)
                console.print(f"runtime `{need.type_key}` is not installed: {advice}", soft_wrap=True)
    if members:
        listing = new_table("Files", "name", "bytes", right=("bytes",))
        for name, nbytes in artifact.members.items():
            listing.add_row(name, f"{nbytes:,}")
        console.print(listing)
    _print_request(artifact.request_data)
    console.print(render_report(report), soft_wrap=True)
    if program:
        console.print()
        console.print(artifact.listing, soft_wrap=True)


def artifact_to_data(artifact: InspectResult, requested_sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return an artifact as JSON values: the content of the tables, and the report.

    Args:
        artifact: the artifact.
        requested_sizes: the counted values of symbolic sizes; others count as 1.

    Raises:
        OptionsError: a size affects neither the memory of a call nor the FLOPs.
    """
    sizes, report = _count(artifact, requested_sizes)
    functions = {}
    states = artifact.states
    for name, signature in artifact.functions.items():
        need = artifact.memory[name].at(sizes)
        functions[name] = {
            "inputs": [_spec_to_data(spec) for spec in signature.inputs],
            "outputs": [_spec_to_data(spec) for spec in signature.outputs],
            **({"states": [*map(_state_to_data, states[name])]} if name in states else {}),
            "memory": {
                "constants_nbytes": need.constants_nbytes,
                "payload_nbytes": need.payload_nbytes,
                "arena_nbytes": _plain(need.arena_nbytes),
                "input_nbytes": _plain(need.input_nbytes),
                "output_nbytes": _plain(need.output_nbytes),
                "needed_nbytes": _plain(need.needed_nbytes),
            },
        }
    return {
        "schema": 1,
        "kind": "artifact",
        "file": artifact.path,
        "nbytes": artifact.nbytes,
        "digest": artifact.digest,
        "format_version": artifact.format_version,
        "core_version": artifact.core_version,
        "num_constants": artifact.num_constants,
        "constants_nbytes": artifact.constants_nbytes,
        "is_native": artifact.is_native,
        "is_trusted": artifact.is_trusted,
        "sizes": sizes,
        "functions": functions,
        "modules": [
            {
                "runtime": module.type_key,
                "functions": list(module.functions),
                "nbytes": module.nbytes,
                "is_native": module.is_native,
            }
            for module in artifact.modules
        ],
        "runtimes": [
            {
                "runtime": need.type_key,
                "distribution": need.distribution,
                "version": need.version,
                "is_installed": need.is_installed,
            }
            for need in artifact.runtimes
        ],
        "members": dict(artifact.members),
        "request": dict(artifact.request_data),
        "report": dict(report),
    }


def _state_to_data(state: StateSummary) -> dict[str, Any]:
    return {
        "before": _spec_to_data(state.before),
        "after": _spec_to_data(state.after),
        "axis": state.axis,
        "copied_nbytes": [_plain(nbytes) for nbytes in state.copied_nbytes.values()],
        "domain": state.domain,
    }


def _spec_to_data(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": [_plain(size) for size in spec.shape]}


def _plain(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else str(dim)


def _print_request(request: Mapping[str, Any]) -> None:
    """Print the compilation's request, without empty, disabled or missing fields."""
    import json

    from byoc_core.cli.console import new_table, open_console

    table = new_table("Request", "field", "value")
    for name, value in request.items():
        shown = {key: item for key, item in value.items() if item} if isinstance(value, dict) else value
        if shown:
            table.add_row(name, json.dumps(shown))
    if table.row_count:
        open_console().print(table)


def _size(nbytes: Dim) -> str:
    return f"{nbytes:,}" if isinstance(nbytes, int) else str(nbytes)


def _count(artifact: InspectResult, requested_sizes: Mapping[str, int]) -> tuple[dict[str, int], Mapping[str, Any]]:
    """Return the size of each symbol in the memory of a call, and the report with shares for the given sizes.

    Raises:
        OptionsError: a given size affects neither the memory of a call nor the FLOPs.
    """
    in_memory = frozenset[str]().union(*(symbols_of(need.needed_nbytes) for need in artifact.memory.values()))
    in_flops = counted_sizes(artifact.report_data).keys()
    size_names = sorted({*in_memory, *in_flops})
    for name in requested_sizes:
        if name not in size_names:
            expected = ", ".join(size_names) or "no size: neither memory nor FLOPs depend on a symbolic size"
            raise OptionsError(
                f"--dim {name}",
                "is not a symbolic size of the artifact",
                expected=expected,
                hint=near_names(name, size_names) or None,
            )
    counted = {name: size for name, size in requested_sizes.items() if name in in_flops}
    report = apportion(artifact.report_data, counted) if counted else artifact.report_data
    return {name: requested_sizes.get(name, 1) for name in sorted(in_memory)}, report
