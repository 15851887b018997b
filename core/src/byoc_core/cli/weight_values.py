"""Weights with other values: an option of ``byoc compile``, and the actions of ``byoc weights``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.artifact.weight_table import WeightTable

__all__ = ["SwappableWeightsOption", "merge_adapter", "parse_swappable", "print_weights", "swap"]

_ALL = "all"

SwappableWeightsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--swappable-weights",
        metavar="NAME",
        help="Let `byoc weights swap` replace the values of a weight later; `*` and `?` as in file names, repeat for "
        "several names, or give `all` for all tensors of floats. Backends do not see the values of these weights.",
        show_default=False,
    ),
]


def parse_swappable(texts: Sequence[str] | None) -> bool | tuple[str, ...]:
    """Return the choice of swappable weights, as for :func:`byoc_core.from_onnx`."""
    return True if texts and list(texts) == [_ALL] else tuple(texts or ())


def print_weights(paths: Sequence[Path]) -> None:
    """Print the weights of an artifact: names, dtypes and shapes, and the reasons of weights that are not swappable.

    Raises:
        OptionsError: not a single artifact is given.
        ArtifactError: the file is no artifact.
        OSError: the file cannot be read.
    """
    from byoc_core.artifact import list_weights
    from byoc_core.cli.console import print_text
    from byoc_core.printable import to_printable_lines

    if len(paths) != 1:
        raise OptionsError("byoc weights list", "takes one artifact", got=len(paths))
    print_text(to_printable_lines(_table_text(list_weights(paths[0]))) + "\n")


def swap(paths: Sequence[Path], output: Path | None) -> None:
    """Write an artifact with the tensors of a file as weights, by name.

    Args:
        paths: the artifact, and the file of tensors.
        output: the artifact to write; by default the artifact is replaced.

    Raises:
        OptionsError: not an artifact and a file are given.
        ByocError: see :func:`byoc_core.artifact.read_tensors` and :func:`byoc_core.artifact.swap_weights`.
        OSError: a file cannot be read or written.
    """
    from byoc_core.artifact import read_tensors, swap_weights
    from byoc_core.cli.console import show_bytes

    artifact, tensors, target = _targets("swap", paths, output)
    values = read_tensors(tensors).tensors
    with show_bytes(f"write {target.name}") as show:
        swap_weights(artifact, values, target, progress=show)
    _print_written(target, f"{len(values)} weights of {tensors}")


def merge_adapter(
    paths: Sequence[Path],
    output: Path | None,
    scale: float | None,
    weight_names: Sequence[str],
    *,
    is_transposed: bool | None,
) -> None:
    """Write an artifact with a low-rank adapter merged into the weights.

    Args:
        paths: the artifact, and the file of the adapter.
        output: the artifact to write; by default the artifact is replaced.
        scale: the factor of the changes, if given.
        weight_names: texts ``MODULE=WEIGHT``.
        is_transposed: whether the weights have shape ``(inputs, outputs)``, if stated.

    Raises:
        OptionsError: not an artifact and a file are given, or a text is malformed.
        ByocError: see :func:`byoc_core.artifact.load_adapter` and :func:`byoc_core.artifact.merge_adapters`.
        OSError: a file cannot be read or written.
    """
    from byoc_core.artifact import load_adapter, merge_adapters
    from byoc_core.cli.console import show_bytes

    artifact, tensors, target = _targets("merge-adapter", paths, output)
    names = {}
    for text in weight_names:
        module, equals, weight = text.partition("=")
        if not (module and equals and weight):
            raise OptionsError("--weight", "is malformed", got=repr(text), expected="MODULE=WEIGHT")
        names[module] = weight
    adapter = load_adapter(tensors, scale=scale, names=names, transposed=is_transposed)
    with show_bytes(f"write {target.name}") as show:
        merge_adapters(artifact, [adapter], target, progress=show)
    _print_written(target, f"the adapter {tensors}")


def _targets(action: str, paths: Sequence[Path], output: Path | None) -> tuple[Path, Path, Path]:
    """Return the artifact, the file of tensors, and the artifact to write."""
    if len(paths) != 2:
        raise OptionsError(f"byoc weights {action}", "takes an artifact and a file of tensors", got=len(paths))
    artifact, tensors = paths
    return artifact, tensors, artifact if output is None else output


def _print_written(target: Path, content: str) -> None:
    from rich.filesize import decimal

    from byoc_core.cli.console import print_text
    from byoc_core.printable import to_printable_lines

    print_text(to_printable_lines(f"wrote {target} ({decimal(target.stat().st_size)}) with {content}") + "\n")


def _table_text(table: WeightTable) -> str:
    from rich.filesize import decimal

    if not table:
        return "no swappable weights: the model was compiled without --swappable-weights"
    lines = [f"{len(table.weights)} swappable weights, {decimal(sum(weight.nbytes for weight in table.weights))}"]
    lines += [f"  {weight.name}: {weight.dtype}{list(weight.shape)}" for weight in table.weights]
    if table.fixed:
        lines.append(f"{len(table.fixed)} weights that are not swappable")
        lines += [f"  {weight.name}: {weight.dtype}{list(weight.shape)} {weight.reason}" for weight in table.fixed]
    return "\n".join(lines)
