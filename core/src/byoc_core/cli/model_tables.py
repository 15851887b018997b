"""The inspection of an ONNX model as tables, for ``byoc inspect``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from byoc_core.cli.console import new_table, open_console, print_text
from byoc_core.reporting.text import flops_text, percent

if TYPE_CHECKING:
    from rich.console import Console

    from byoc_core.frontend.onnx.inspection import ModelInspection, ModelWork, TensorRow

__all__ = ["print_model"]

_MAX_SIZES = 40
_MAX_COUNTED = 6


def print_model(model: ModelInspection, num_largest: int) -> None:
    """Print the inspection of a model.

    Args:
        model: the inspection.
        num_largest: the number of weights to list.
    """
    console = open_console()
    for label, text in _head(model):
        console.print(f"{label:<12} {text}", soft_wrap=True)
    console.print()
    _print_tensors(console, model)
    _print_operators(console, model)
    _print_weights(console, model, num_largest)
    if model.work is not None:
        _print_work(console, model.work)
    if model.missing and model.error is not None:
        console.print(str(model.error.hint or ""), soft_wrap=True)
        if model.error.detail:
            print_text(model.error.detail + "\n")


def _head(model: ModelInspection) -> Iterable[tuple[str, str]]:
    """Yield labels and texts of the first lines."""
    yield "file", f"{model.source} ({model.nbytes:,} bytes)"
    yield "producer", f"{model.producer or 'unknown'}, IR version {model.ir_version}"
    yield "opsets", ", ".join(f"{domain} {version}" for domain, version in model.opsets.items())
    yield "nodes", f"{model.num_nodes:,}, of {_counted(len(model.operators), 'operator')}"
    elements = sum(weight.num_elements for weight in model.weights)
    nbytes = sum(weight.nbytes for weight in model.weights)
    yield "weights", f"{_counted(len(model.weights), 'tensor')}, {elements:,} elements, {nbytes:,} bytes"
    work = model.work
    if work is not None:
        short = f" ({flops_text(work.counted_flops, {})})" if work.counted_flops >= 1000 else ""
        symbolic = "" if isinstance(work.total_flops, int) else f", for all sizes {work.total_flops}"
        yield "FLOPs", f"{work.counted_flops:,}{short}{symbolic}"
        yield "memory", f"{work.memory.needed_nbytes:,} bytes for a call, estimated"
        if work.counted_sizes:
            yield "counting", _counting(work)
    yield "import", "possible" if model.error is None else _describe_failure(model)


def _describe_failure(model: ModelInspection) -> str:
    """Return the mark of a model without import: the missing operators, or the error."""
    if model.missing:
        nodes = sum(use.nodes for use in model.missing)
        names = ", ".join(f"{use.operator} ({use.nodes}x)" for use in model.missing)
        return f"NOT POSSIBLE: {nodes:,} of {model.num_nodes:,} nodes have operators without importer: {names}"
    return f"NOT POSSIBLE: {model.error}"


def _print_tensors(console: Console, model: ModelInspection) -> None:
    table = new_table("Inputs and outputs", "", "name", "dtype", "shape")
    for role, rows in (("in", model.inputs), ("out", model.outputs)):
        for row in rows:
            table.add_row(role, row.name, row.dtype, _shape(row))
    console.print(table)


def _print_operators(console: Console, model: ModelInspection) -> None:
    table = new_table("Operators of ONNX", "operator", "nodes", "imported", "by", right=("nodes",))
    for use in model.operators:
        kind = use.kind.value
        table.add_row(use.operator, f"{use.nodes:,}", kind.upper() if use in model.missing else kind, use.origin)
    console.print(table)


def _print_weights(console: Console, model: ModelInspection, num_largest: int) -> None:
    if not model.weights:
        return
    right = ("tensors", "elements", "bytes")
    table = new_table("Weights by dtype", "dtype", *right, right=right)
    for dtype, numbers in model.weights_by_dtype().items():
        table.add_row(dtype, *(f"{number:,}" for number in numbers))
    console.print(table)
    largest = model.weights[:num_largest]
    if largest:
        title = _title("Largest weights", len(largest), len(model.weights))
        table = new_table(title, "name", "dtype", "shape", "bytes", right=("bytes",))
        for weight in largest:
            shape = f"({', '.join(map(str, weight.shape))})"
            table.add_row(weight.name, weight.dtype, shape, f"{weight.nbytes:,}")
        console.print(table)


def _print_work(console: Console, work: ModelWork) -> None:
    total = work.counted_flops
    right = ("count", "FLOPs", "share")
    table = new_table("Ops of byoc", "op", *right, right=right)
    for op in work.ops:
        table.add_row(op.op, f"{op.count:,}", f"{op.counted_flops:,}", _share(op.counted_flops, total))
    console.print(table)
    if work.num_constant_ops:
        are = "op on constants alone is" if work.num_constant_ops == 1 else "ops on constants alone are"
        console.print(f"{work.num_constant_ops:,} {are} left out: the compiler computes the results.\n", soft_wrap=True)
    if work.nodes:
        table = new_table("Nodes with the most FLOPs", "node", "operator", "FLOPs", "share", right=("FLOPs", "share"))
        for node in work.nodes:
            table.add_row(node.node, node.operator, f"{node.flops:,}", _share(node.flops, total))
        console.print(table)
    _print_memory(console, work)
    _print_sizes(console, [origin.to_data() for origin in work.sizes])


def _print_memory(console: Console, work: ModelWork) -> None:
    memory = work.memory
    parts = ("constants", "arena", "inputs", "outputs", "needed")
    table = new_table("Estimated bytes in memory for a call", *parts, right=parts)
    numbers = (
        memory.constants_nbytes,
        memory.arena_nbytes,
        memory.input_nbytes,
        memory.output_nbytes,
        memory.needed_nbytes,
    )
    table.add_row(*(f"{number:,}" for number in numbers))
    console.print(table)
    where = f", at node {memory.peak_node}" if memory.peak_node else ""
    console.print(
        f"The arena holds the values between ops, computed one by one. The peak of live bytes is "
        f"{memory.peak_nbytes:,}{where}; all values together take {memory.unshared_nbytes:,}.",
        soft_wrap=True,
    )
    if memory.num_uncounted:
        console.print(f"Not counted: {_counted(memory.num_uncounted, 'value')} of unknown rank.", soft_wrap=True)
    console.print()


def _print_sizes(console: Console, rows: Sequence[Mapping[str, str]]) -> None:
    if not rows:
        return
    columns = ("size", "kind", "where")
    table = new_table(_title("Dynamic sizes", min(len(rows), _MAX_SIZES), len(rows)), *columns)
    for row in rows[:_MAX_SIZES]:
        table.add_row(*(row[column] for column in columns))
    console.print(table)


def _title(text: str, shown: int, total: int) -> str:
    return text if shown == total else f"{text}, {shown:,} of {total:,}"


def _shape(row: TensorRow) -> str:
    return "" if row.shape is None else f"({', '.join(map(str, row.shape))})"


def _counting(work: ModelWork) -> str:
    """Return the counted sizes as text."""
    sizes = [f"{name} = {size}" for name, size in work.counted_sizes.items()]
    more = f" and {len(sizes) - _MAX_COUNTED} more" if len(sizes) > _MAX_COUNTED else ""
    return f"{', '.join(sizes[:_MAX_COUNTED])}{more} (--dim NAME=SIZE for others)"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _share(flops: int, total: int) -> str:
    return percent(flops / total if total else 0.0)
