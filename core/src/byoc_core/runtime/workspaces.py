"""Scratch memory passed by a caller: the size in the caller's terms, and calls with scratch memory.

Lowering sizes the workspace of a call by :func:`caller_nbytes`. Linking a program to modules checks the workspace by
:func:`takes_workspace`: a function given too little memory would write beyond the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.dims import Dim, is_nonnegative, match_symbols, substitute, symbols_of
from byoc_core.errors import LinkError
from byoc_core.runtime.module import CallTraits, Signature, TensorSpec

__all__ = ["caller_nbytes", "takes_workspace"]


def caller_nbytes(nbytes: Dim, signature: Signature | None, shapes: Iterable[Sequence[Dim]]) -> Dim | None:
    """Return a function's size of scratch memory in the caller's symbols; ``None`` if not determined by the shapes.

    Args:
        nbytes: the size in the symbols of the signature.
        signature: the inputs and outputs of the function.
        shapes: of the caller's tensors, inputs then outputs.
    """
    if isinstance(nbytes, int):
        return nbytes
    if signature is None:
        return None
    declared = [dim for spec in (*signature.inputs, *signature.outputs) for dim in spec.shape]
    caller_dims = [dim for shape in shapes for dim in shape]
    if len(declared) != len(caller_dims):
        return None
    meanings = match_symbols(declared, caller_dims)
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
    """Check a tensor as a function's scratch memory, and return whether the function receives the tensor.

    Args:
        where: the call, for errors.
        name: the function.
        traits: the permissions of the function.
        signature: the inputs and outputs of the function.
        tensors: the call's inputs and outputs.
        workspace: the tensor behind the inputs and outputs.
        may_differ: whether the module's workspaces may have been different when the program was made.

    Raises:
        LinkError: the tensor is of another type, or is not provably large enough while ``may_differ`` is false.
    """
    if workspace.dtype != "uint8" or len(workspace.shape) != 1:
        raise LinkError(
            where,
            f"register {workspace.name} cannot be the workspace of `{name}`",
            got=f"{workspace.dtype}[{', '.join(map(str, workspace.shape))}]",
            expected="uint8 of one axis",
        )
    required = caller_nbytes(traits.workspace_nbytes, signature, [tensor.shape for tensor in tensors])
    (size,) = workspace.shape
    if required is None or not is_nonnegative(size - required):
        if may_differ:
            return False
        raise LinkError(
            where,
            f"register {workspace.name} is not provably large enough for the workspace of `{name}`",
            got=f"{size} bytes",
            expected=f"{traits.workspace_nbytes if required is None else required} bytes",
        )
    return required != 0
