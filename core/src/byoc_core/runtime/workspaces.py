"""Scratch memory that a caller hands over: its size in the caller's terms, and calls that bring it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.dims import Dim, is_nonnegative, match_symbols, substitute, symbols_of
from byoc_core.errors import LinkError
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec

__all__ = ["caller_nbytes", "takes_workspace"]


def caller_nbytes(nbytes: Dim, signature: Signature | None, shapes: Iterable[Sequence[Dim]]) -> Dim | None:
    """Gives a function's size of scratch memory in its caller's symbols; ``None`` where the shapes do not tell it.

    Args:
        nbytes: the size in the symbols of the signature.
        signature: what the function takes and gives.
        shapes: of the caller's tensors, inputs then outputs.
    """
    if isinstance(nbytes, int):
        return nbytes
    if signature is None:
        return None
    declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
    given = [dim for shape in shapes for dim in shape]
    if len(declared) != len(given):
        return None
    meanings = match_symbols(declared, given)
    return substitute(nbytes, meanings) if symbols_of(nbytes) <= meanings.keys() else None


def takes_workspace(
    where: str,
    name: str,
    traits: CallTraits,
    signature: Signature,
    tensors: Sequence[TensorSpec],
    workspace: TensorSpec,
    *,
    may_differ: bool,
) -> bool:
    """Checks that a tensor can be a function's scratch memory, and tells whether the function is given it.

    Args:
        where: the call, as errors name it.
        name: the function.
        traits: what it permits.
        signature: what it takes and gives.
        tensors: the call's inputs and outputs.
        workspace: what comes behind them.
        may_differ: whether the module's workspaces may have been others when the program was made.

    Raises:
        LinkError: it is of another type, or not certainly large enough where the size may not differ.
    """
    if workspace.dtype != "uint8" or len(workspace.shape) != 1:
        raise LinkError(
            where,
            f"register {workspace.name} cannot be the workspace of `{name}`",
            got=f"{workspace.dtype}[{', '.join(map(str, workspace.shape))}]",
            expected="uint8 of one axis",
        )
    needed = caller_nbytes(traits.workspace_nbytes, signature, [tensor.shape for tensor in tensors])
    (size,) = workspace.shape
    if needed is None or not is_nonnegative(size - needed):
        if may_differ:
            return False
        raise LinkError(
            where,
            f"register {workspace.name} is not certainly large enough for the workspace of `{name}`",
            got=f"{size} bytes",
            expected=f"{traits.workspace_nbytes if needed is None else needed} bytes",
        )
    return needed != 0
