"""``byoc weights``: constants shared by several artifacts, and other values of the weights of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = ["manage_weights"]

Action = Literal["show", "share", "join", "list", "swap", "merge-adapter"]


def manage_weights(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="show|share|join|list|swap|merge-adapter",
            help="Show the bytes of constants, and the bytes saved by sharing; write artifacts without constants, with "
            "one file of all constants; write an artifact with the constants inside; list the weights of an artifact; "
            "replace the values of weights by the tensors of a file; or add a low-rank adapter (LoRA) to the weights.",
            show_default=False,
        ),
    ],
    artifacts: Annotated[
        list[Path],
        typer.Argument(
            readable=False,
            metavar="FILE...",
            help="The artifacts; for `swap` and `merge-adapter` an artifact, then a .safetensors or .npz file.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            readable=False,
            help="The folder of `share`, or the artifact to write; by default `swap` and `merge-adapter` replace the "
            "artifact.",
            show_default=False,
        ),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            readable=False,
            metavar="FILE",
            help="The file of constants, for `join`; by default weights.byocw beside the artifact.",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            help="The factor of the changes of `merge-adapter`, alpha / rank; by default from adapter_config.json.",
            show_default=False,
        ),
    ] = None,
    weight_names: Annotated[
        list[str] | None,
        typer.Option(
            "--weight",
            metavar="MODULE=WEIGHT",
            help="For `merge-adapter`: the weight changed by a module of the adapter, by default MODULE.weight; repeat "
            "for several.",
            show_default=False,
        ),
    ] = None,
    transposed: Annotated[
        bool | None,
        typer.Option(
            "--transposed/--not-transposed",
            help="For `merge-adapter`: whether the weights have shape (inputs, outputs).",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Let several artifacts share one file of constants, or give the weights of an artifact other values.

    Artifacts of one model (other sizes, other backends, prefill and decode) hold the same constants. `share` writes
    each constant once, into the file weights.byocw beside the artifacts; byoc finds the file there. Processes that load
    several of the artifacts share the memory of the constants.

    `swap` replaces weights by name, without a compiler: the result equals a build of the model with the new weights.
    The model must be compiled with --swappable-weights; `list` shows the names, and which weights are swappable.
    `merge-adapter` adds a low-rank adapter in the form of PEFT to the weights, in the same way.
    """
    from rich.filesize import decimal

    from byoc_core.artifact.sharing import join_weights, share_weights
    from byoc_core.cli.console import print_text, show_bytes
    from byoc_core.cli.weight_values import merge_adapter, print_weights, swap
    from byoc_core.errors import OptionsError
    from byoc_core.printable import to_printable_lines

    if action == "show":
        print_text(to_printable_lines(_summary(artifacts)) + "\n")
        return
    if weights is not None and action != "join":
        raise OptionsError("--weights", "applies to `byoc weights join` only")
    if action == "list":
        print_weights(artifacts)
        return
    is_adapter = action == "merge-adapter"
    if not is_adapter and (scale is not None or weight_names or transposed is not None):
        raise OptionsError("--scale, --weight and --transposed", "apply to `byoc weights merge-adapter` only")
    if action == "swap":
        swap(artifacts, output)
        return
    if is_adapter:
        merge_adapter(artifacts, output, scale, weight_names or (), is_transposed=transposed)
        return
    if output is None:
        raise OptionsError("--output", f"is missing: `byoc weights {action}` writes files")
    if action == "share":
        with show_bytes(f"write {output.name}") as show:
            written = share_weights(artifacts, output, progress=show)
    elif len(artifacts) != 1:
        raise OptionsError("byoc weights join", "takes one artifact", got=len(artifacts))
    else:
        with show_bytes(f"write {output.name}") as show:
            join_weights(artifacts[0], output, weights=weights, progress=show)
        written = [output]
    lines = (f"wrote {path} ({decimal(path.stat().st_size)})" for path in written)
    print_text(to_printable_lines("\n".join(lines)) + "\n")


def _summary(artifacts: list[Path]) -> str:
    from rich.filesize import decimal

    from byoc_core.artifact.loading import open_artifact

    nbytes: dict[str, int] = {}
    total = 0
    lines = []
    for path in artifacts:
        constants = open_artifact(path).manifest.constants
        sizes = {digest: entry.nbytes for digest, entry in constants.items()}
        total += sum(sizes.values())
        nbytes.update(sizes)
        lines.append(f"{path}: {len(sizes)} constants, {decimal(sum(sizes.values()))}")
    shared = sum(nbytes.values())
    lines.append(
        f"together: {len(nbytes)} different constants, {decimal(shared)}; sharing saves {decimal(total - shared)}"
    )
    return "\n".join(lines)
