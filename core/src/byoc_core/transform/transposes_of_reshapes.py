"""Transposes moved through reshapes, to meet other transposes.

Image networks on tokens turn tokens into images and back: a transpose, a reshape, and a transpose to channels last.
Together these are often a reshape alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, Trait, Value
from byoc_core.opset.permutation import Order, inverse
from byoc_core.transform.permuted_ops import as_permutable
from byoc_core.transform.rewriter import RewriteGraph
from byoc_core.transform.tensors import permutation_of, shape_of

__all__ = ["join_around_reshape", "reshape_first", "transpose_before_reshape"]

Shape = Sequence[Dim]


def join_around_reshape(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Replace ``permute_dims(reshape(permute_dims(x)))`` by a reshape alone, if possible.

    A single transpose in place of both may be worse: each of them alone may meet another transpose.
    """
    reshape = graph.maker(binding.operands[0], Trait.RESHAPING)
    if reshape is None or len(reshape.operands) != 1:
        return None
    inner = graph.maker(reshape.operands[0], "permute_dims")
    shape = None if inner is None else shape_of(inner.operands[0])
    target = shape_of(reshape.results[0])
    if inner is None or shape is None or target is None:
        return None
    found = reshape_first(shape, permutation_of(inner), target)
    if found is None:
        return None
    reshaped, order = found
    axes = tuple(order[axis] for axis in permutation_of(binding))
    if not _is_reshape(reshaped, axes):
        return None
    return (graph.emit("reshape", inner.operands, {"shape": tuple(reshaped[axis] for axis in axes)}),)


def transpose_before_reshape(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    """Replace ``permute_dims(reshape(x))`` by ``reshape(permute_dims(x))``, if ``x`` may be computed in any order.

    The transpose may meet another one in front of ``x`` then.
    """
    reshape = graph.maker(binding.operands[0], Trait.RESHAPING)
    if reshape is None or len(reshape.operands) != 1 or graph.num_uses(reshape.results[0]) != 1:
        return None
    (x,) = reshape.operands
    producer, shape, target = graph.producer(x), shape_of(x), shape_of(binding.results[0])
    if producer is None or shape is None or target is None or graph.num_uses(x) != 1:
        return None
    maker, _ = producer
    permutable = None if maker.codegen is not None or maker.regions else as_permutable(maker, exact=True)
    if permutable is None or not permutable.operands:
        return None
    found = reshape_first(target, inverse(permutation_of(binding)), shape)
    if found is None:
        return None
    axes = inverse(found[1])
    turned = x if _is_reshape(shape, axes) else graph.emit("permute_dims", (x,), {"axes": axes})
    return (graph.emit("reshape", (turned,), {"shape": tuple(target)}),)


def _is_reshape(shape: Shape, order: Order) -> bool:
    """Return whether a transpose keeps the order of the elements: only axes of size 1 change places."""
    long_axes = [axis for axis in order if shape[axis] != 1]
    return long_axes == sorted(long_axes)


def reshape_first(shape: Shape, order: Order, target: Shape) -> tuple[Shape, Order] | None:
    """Return a shape and an order equal to a transpose followed by a reshape, but with the reshape first.

    ``reshape(permute_dims(x, order), target)`` is ``permute_dims(reshape(x, shape'), order')``, if each run of axes
    of the transposed ``x`` with as many elements as a run of axes of ``target`` is a single axis, or a run of axes of
    ``x`` itself.

    Args:
        shape: the sizes of ``x``.
        order: the axes of ``x``, in the order of the transpose.
        target: the sizes of the reshape.

    Returns:
        ``shape'`` and ``order'``; ``None`` if the transpose cannot be last.
    """
    if 0 in shape:
        return None
    # Axes of size 1 may be anywhere.
    axes = [axis for axis in order if shape[axis] != 1]
    runs = _match_runs([shape[axis] for axis in axes], target)
    if runs is None:
        return None
    long_axes = sorted(axes)
    targets_of: dict[int, list[int]] = {}  # by the first axis of a run in `x`
    for sources, targets in runs:
        numbers = [long_axes.index(axes[position]) for position in sources]
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            return None
        targets_of[numbers[0]] = targets
    stored = [axis for _, targets in sorted(targets_of.items()) for axis in targets if target[axis] != 1]
    for axis, size in enumerate(target):
        if size == 1:
            stored.insert(axis, axis)
    return [target[axis] for axis in stored], tuple(stored.index(axis) for axis in range(len(target)))


def _match_runs(shape: Shape, target: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Return the shortest runs of axes of both shapes with equal numbers of elements; ``None`` if sizes disagree.

    A symbolic size is compared with runs of ``target`` only. Axes of size 1 in ``target`` belong to any run, or none.
    """
    runs: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(shape):
        left: Dim = shape[i]
        right: Dim = 1
        run: tuple[list[int], list[int]] = ([i], [])
        i += 1
        while left != right:
            if isinstance(left, int) and isinstance(right, int) and left < right:
                if i == len(shape):
                    return None
                run[0].append(i)
                left, i = product((left, shape[i])), i + 1
            else:
                if j == len(target):
                    return None
                run[1].append(j)
                right, j = product((right, target[j])), j + 1
        runs.append(run)
    return None if any(size != 1 for size in target[j:]) else runs
