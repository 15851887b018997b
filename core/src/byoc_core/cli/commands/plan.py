"""``byoc plan``: the buffers of a model in the arena."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.console import print_text
from byoc_core.cli.request import EXPLAIN_FLAGS, RequestFlags, takes_request
from byoc_core.dims import Dim, evaluate, shape_symbols
from byoc_core.errors import OptionsError, near_names

if TYPE_CHECKING:
    from byoc_core.artifact.memory_need import MemoryNeed
    from byoc_core.runtime.pools import Pool
    from byoc_core.vm.border_copies import BorderCopy
    from byoc_core.vm.memory_map import MemoryMap
    from byoc_core.vm.program import Program, VMFunction

__all__ = ["plan_memory"]


@takes_request(*EXPLAIN_FLAGS)
def plan_memory(
    model: Annotated[
        Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model, or an artifact.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.svg",
            readable=False,
            help="Draw the plan: instructions against addresses, a rectangle for each buffer, the line of live bytes.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="The value of a symbolic size; needed for each size with an influence on the plan.",
            show_default=False,
        ),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            metavar="NAME=BYTES",
            help="A memory of the host in order of preference, as for `byoc export`; repeat for several: sram=65536, "
            "dram=any, flash=1000000:read (for constants only).",
            show_default=False,
        ),
    ] = None,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Show the buffers of a model in the arena: bytes, live range, offset and purpose, and the arena's lower bound.

    Each memory domain of a device has an arena of its own, and so has each pool of a domain. Each copy between domains
    is listed with value and readers.

    The arena is the memory planned for a call: values between regions, and the workspaces taken by regions from the
    caller. Buffers without a common instruction may share bytes. The lower bound is the peak of live bytes: no plan is
    smaller. A model is compiled now, and no artifact is written. No code of an artifact runs.
    """
    from byoc_core.cli.inputs import parse_sizes
    from byoc_core.cli.pools import parse_pool
    from byoc_core.cli.selection import check_output

    sizes = parse_sizes(dim)
    if output is not None:
        check_output(output, model)
    planned = _read(model, flags, max_nodes)
    maps = _maps(planned, sizes, [parse_pool(text) for text in pool or ()])
    needs = [planned.needs[found.function].at(sizes) for found in maps]
    if as_json:
        _print_json(planned, maps, needs, sizes)
    else:
        _print_tables(planned, maps, needs, sizes)
    if output is not None:
        _draw(output, f"Memory plan of {model.name}", maps)


@dataclass(frozen=True)
class _PlannedModel:
    """A compiled model.

    Attributes:
        program: the VM program.
        constants_nbytes: the bytes of all constants.
        needs: the memory of a call of each function.
    """

    program: Program
    constants_nbytes: int
    needs: Mapping[str, MemoryNeed]


def _read(model: Path, flags: RequestFlags, max_nodes: int | None) -> _PlannedModel:
    from byoc_core.artifact import inspect
    from byoc_core.artifact.memory_need import MemoryNeed
    from byoc_core.cli.selection import build_model, is_artifact, refuse_request

    if is_artifact(model):
        refuse_request(model, flags, max_nodes)
        artifact = inspect(model)
        return _PlannedModel(artifact.program, artifact.constants_nbytes, artifact.memory)
    executable = build_model(model, flags.to_request(), max_nodes=max_nodes)
    constants_nbytes = sum(array.nbytes for array in executable.constants.values())
    functions = executable.program.functions
    needs = {function.name: MemoryNeed.of(function, constants_nbytes, 0) for function in functions}
    return _PlannedModel(executable.program, constants_nbytes, needs)


def _maps(planned: _PlannedModel, sizes: Mapping[str, int], pools: Sequence[Pool]) -> list[MemoryMap]:
    """Return the map of each function, domain and pool for the given sizes; no two live buffers share bytes.

    Raises:
        OptionsError: a size is missing, or is no size of the program.
        MemoryLimitError: a pool is too small.
    """
    from byoc_core.errors import InternalError
    from byoc_core.vm.memory_map import memory_map
    from byoc_core.vm.pool_placement import place_buffers, pools_of_intermediates
    from byoc_core.vm.program import HOST

    program = planned.program
    symbols = sorted({name for function in program.functions for name in function.input_symbols})
    for name in sizes:
        if name not in symbols:
            raise OptionsError(
                f"--dim {name}",
                "is not a symbolic size of the inputs",
                expected=", ".join(symbols) or "no size: all inputs have static sizes",
                hint=near_names(name, symbols) or None,
            )
    dims = [dim for function in program.functions for dim in _planned_dims(function)]
    missing = sorted(shape_symbols(dims) - sizes.keys())
    if missing:
        raise OptionsError(
            "--dim",
            f"the plan depends on {', '.join(missing)}",
            expected=" ".join(f"--dim {name}=SIZE" for name in missing),
        )
    writable = pools_of_intermediates(pools, planned.constants_nbytes)
    maps: list[MemoryMap] = []
    for function in program.functions:
        if writable:
            maps += place_buffers(
                program, function, writable, lambda nbytes: evaluate(nbytes, sizes), sizes=sizes
            ).maps()
        else:
            maps.append(memory_map(program, function, sizes))
        maps += [
            memory_map(program, function, sizes, domain, number)
            for domain in sorted(set(function.domains) - {HOST})
            for number, pool in enumerate(program.domains[domain - 1].pools or (None,))
            if pool is None or pool.is_writable
        ]
    for found in maps:
        overlap = found.find_overlap()
        if overlap is not None:
            raise InternalError(f"function `{found.function}`", f"has a plan with overlapping {' and '.join(overlap)}")
    return maps


def _planned_dims(function: VMFunction) -> Iterator[Dim]:
    """Yield the sizes and offsets with an influence on a function's plan."""
    yield from function.storages
    for tensor in function.tensors:
        yield from tensor.shape
    for view in function.views:
        if function.first_tensor <= view.base < function.first_view:
            yield view.offset


def _print_tables(
    planned: _PlannedModel, maps: Sequence[MemoryMap], needs: Sequence[MemoryNeed], sizes: Mapping[str, int]
) -> None:
    from byoc_core.cli.console import new_table, open_console

    console = open_console()
    right = ("bytes", "offset", "first", "last")
    counted = "".join(f", {name} = {size}" for name, size in sorted(sizes.items()))
    for found, need in zip(maps, needs, strict=True):
        table = new_table(
            f"Buffers of `{found.function}`{_domain_text(found)}, {found.num_instructions} instructions{counted}",
            *("buffer", "bytes", "first", "last", "offset", "purpose", "written by"),
            right=right,
        )
        for buffer in found.buffers:
            numbers = (buffer.nbytes, buffer.first, buffer.last, buffer.offset)
            table.add_row(buffer.name, *map(_grouped, numbers), buffer.purpose.value, buffer.writer)
        if found.buffers:
            console.print(table)
        else:
            console.print(f"`{found.function}` needs no arena{_domain_text(found)}{counted}", soft_wrap=True)
        limit = () if found.limit_nbytes is None else (("limit", _grouped(found.limit_nbytes)),)
        for label, text in (
            ("arena", _grouped(found.arena_nbytes)),
            *limit,
            ("lower bound", f"{_grouped(found.peak_nbytes or 0)}, the peak of live bytes"),
            ("ratio", f"{_ratio(found):.3f}"),
            ("without reuse", _grouped(found.total_nbytes)),
            ("constants", f"{_grouped(planned.constants_nbytes)}, shared by all calls"),
            ("inputs", _grouped(need.input_nbytes)),
            ("outputs", _grouped(need.output_nbytes)),
        ):
            console.print(f"{label:<14} {text}", soft_wrap=True)
        console.print()
    for domain, used, read_only in _constant_pools(planned.program):
        bound = "" if read_only.nbytes is None else f" of {_grouped(read_only.nbytes)}"
        where = f"`{domain}`, pool `{read_only.name}`"
        console.print(f"constants in {where}: {_grouped(used)}{bound} bytes, shared by all calls", soft_wrap=True)
    for function in planned.program.functions:
        copies = _copies_of(planned.program, function, sizes)
        if copies:
            table = new_table(
                f"Copies of `{function.name}` between memory domains{counted}",
                *("instruction", "bytes", "from", "to", "value", "read by"),
                right=("instruction", "bytes"),
            )
            for copy in copies:
                row = (copy.source, copy.target, copy.value, ", ".join(copy.readers))
                table.add_row(str(copy.instruction), _grouped(copy.nbytes), *row)
            console.print(table)
            console.print()


def _constant_pools(program: Program) -> Iterator[tuple[str, int, Pool]]:
    """Yield the pools for constants: the name of the domain, the bytes of constants, and the pool."""
    from byoc_core.vm.constant_places import constants_by_domain, place_constants

    sizes = constants_by_domain(program)
    for number, domain in enumerate(program.domains, start=1):
        locations = place_constants(domain, sizes.get(number, {}))
        for pool in domain.pools:
            if not pool.is_writable:
                yield program.domain_name(number), locations.nbytes.get(pool.name, 0), pool


def _copies_of(program: Program, function: VMFunction, sizes: Mapping[str, int]) -> list[BorderCopy]:
    """Return the copies between domains, with sizes as far as known before a run."""
    from dataclasses import replace

    from byoc_core.dims import substitute
    from byoc_core.vm.border_copies import border_copies

    return [replace(copy, nbytes=substitute(copy.nbytes, sizes)) for copy in border_copies(program, function)]


def _print_json(
    planned: _PlannedModel, maps: Sequence[MemoryMap], needs: Sequence[MemoryNeed], sizes: Mapping[str, int]
) -> None:
    import json

    functions: list[dict[str, Any]] = [
        {
            "name": found.function,
            "domain": found.domain,
            "pool": found.pool or None,
            "limit_nbytes": found.limit_nbytes,
            "num_instructions": found.num_instructions,
            "alignment": found.alignment,
            "arena_nbytes": found.arena_nbytes,
            "lower_bound_nbytes": found.peak_nbytes,
            "ratio": _ratio(found),
            "total_nbytes": found.total_nbytes,
            "input_nbytes": _number_or_text(need.input_nbytes),
            "output_nbytes": _number_or_text(need.output_nbytes),
            "buffers": [
                {
                    "name": buffer.name,
                    "nbytes": buffer.nbytes,
                    "first": buffer.first,
                    "last": buffer.last,
                    "offset": buffer.offset,
                    "purpose": buffer.purpose.value,
                    "written_by": buffer.writer,
                    "registers": buffer.registers,
                    "relative_offsets": buffer.relative_offsets,
                }
                for buffer in found.buffers
            ],
        }
        for found, need in zip(maps, needs, strict=True)
    ]
    copies = [
        {"function": function.name, **asdict(copy), "nbytes": _number_or_text(copy.nbytes)}
        for function in planned.program.functions
        for copy in _copies_of(planned.program, function, sizes)
    ]
    report = {
        "schema": 1,
        "sizes": sizes,
        "constants_nbytes": planned.constants_nbytes,
        "functions": functions,
        "constant_pools": [
            {"domain": domain, "pool": pool.name, "nbytes": used, "limit_nbytes": pool.nbytes}
            for domain, used, pool in _constant_pools(planned.program)
        ],
        "copies": copies,
    }
    print_text(json.dumps(report, indent=2) + "\n")


def _draw(output: Path, title: str, maps: Sequence[MemoryMap]) -> None:
    from byoc_core.cli.memory_drawing import draw_memory_maps
    from byoc_core.file_replacement import replace_file

    with replace_file(output) as file:
        file.write(draw_memory_maps(title, maps).encode())
    print_text(f"wrote {output}\n", sys.stderr)


def _domain_text(found: MemoryMap) -> str:
    domain = "" if found.domain == "host" else f" in `{found.domain}`"
    return f"{domain}, pool `{found.pool}`" if found.pool else domain


def _ratio(found: MemoryMap) -> float:
    """Return the arena over the lower bound; 1 for an empty arena."""
    assert isinstance(found.arena_nbytes, int)
    return found.arena_nbytes / found.peak_nbytes if found.peak_nbytes else 1.0


def _grouped(nbytes: Dim) -> str:
    return f"{nbytes:,}" if isinstance(nbytes, int) else str(nbytes)


def _number_or_text(nbytes: Dim) -> int | str:
    return nbytes if isinstance(nbytes, int) else str(nbytes)
