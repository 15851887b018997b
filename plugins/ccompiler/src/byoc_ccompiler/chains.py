"""Fusion of successive convolutions: a depthwise convolution with pointwise convolutions before, behind, or both.

The first convolution of a network, of an image of few channels, may take the place of the earlier pointwise
convolution.

The intermediate image is the largest in a network of such convolutions. The image never leaves the cache if its rows
are computed, used and forgotten. If the whole image fits into the cache, there is nothing to gain.

A chain has two or three convolutions, one of them depthwise, with constant weights and known sizes. The kernel of a
chain (:func:`byoc_ccompiler.kernels.depthwise.write_chain`) relies on this form, and stores no intermediate image: the
image must have a single reader.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.dims import product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Constant, Value

from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.depthwise_blocks import has_small_filter
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.steps import dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["form_chains"]

_LARGE_NBYTES = 1 << 19
"""A tensor from this size on is not written if avoidable, because it would take most of a second-level cache."""


def form_chains(groups: Sequence[Group], results: Sequence[Value], unit: VectorUnit) -> list[Group]:
    """Return the groups, joining chains if profitable.

    Args:
        groups: in an order with every value written before another group reads it; the result has the same order.
        results: the results of the function.
        unit: the vector registers of the target.

    Cost: O(operands).
    """
    return _Joiner(groups, results, unit).join()


class _Joiner:
    def __init__(self, groups: Sequence[Group], results: Sequence[Value], unit: VectorUnit) -> None:
        self._groups = groups
        self._unit = unit
        self._results = set(results)
        self._readers: dict[Value, list[tuple[Group, bool]]] = {}
        for group in groups:
            for step in group.steps:
                for index, operand in enumerate(step.operands):
                    if operand not in group.results:
                        is_image = group.anchored and step is group.steps[0] and index == 0
                        self._readers.setdefault(operand, []).append((group, is_image))

    def join(self) -> list[Group]:
        joined: dict[int, Group] = {}
        chained: set[int] = set()
        for group in self._groups:
            chain = [] if id(group) in chained else self._chain_from(group)
            if len(chain) > 1:
                chained.update(map(id, chain))
                joined[id(chain[-1])] = _join(chain)
        return [
            joined.get(id(group), group) for group in self._groups if id(group) in joined or id(group) not in chained
        ]

    def _chain_from(self, group: Group) -> list[Group]:
        """Return the longest chain beginning with a group; the group alone, or nothing, if there is no chain."""
        chain = [group]
        if self._is_pointwise(group) or self._is_first(group):
            follower = self._follower(group)
            if follower is None or not self._is_depthwise(follower):
                return []
            chain.append(follower)
        elif not self._is_depthwise(group):
            return []
        last = self._follower(chain[-1])
        if last is not None and self._is_pointwise(last):
            chain.append(last)
        return chain

    def _follower(self, group: Group) -> Group | None:
        """Return the convolution with the large result of a group as image, if nothing else reads the result."""
        read = [value for value in group.results if value in self._readers and self._is_read_outside(value, group)]
        if len(read) != 1 or any(value in self._results for value in group.results):
            return None
        (value,) = read
        if value is not group.steps[-1].result or len(self._readers[value]) != 1:
            return None
        ((follower, is_image),) = self._readers[value]
        size = product(shape_of(value))
        is_large = isinstance(size, int) and size * dtype_info(dtype_of(value)).itemsize >= _LARGE_NBYTES
        has_same_dtype = dtype_of(value) == dtype_of(group.steps[0].result)
        return follower if is_image and is_large and has_same_dtype else None

    def _is_read_outside(self, value: Value, group: Group) -> bool:
        return any(reader is not group for reader, _ in self._readers[value])

    def _is_pointwise(self, group: Group) -> bool:
        shape = _geometry(group)
        return shape is not None and shape.is_pointwise and shape.strides == (1, 1) and shape.groups == 1

    def _is_first(self, group: Group) -> bool:
        """Return whether a convolution has strides and an image of few channels, as the first of a network."""
        shape = _geometry(group)
        return shape is not None and shape.joins_lines and shape.strides != (1, 1) and shape.batch == 1

    def _is_depthwise(self, group: Group) -> bool:
        shape = _geometry(group)
        return shape is not None and shape.is_depthwise and has_small_filter(shape, self._unit)


def _geometry(group: Group) -> ConvolutionGeometry | None:
    """Return the sizes of a float convolution with channels last and constant weights, all sizes known and above 0."""
    step = group.steps[0]
    if step.op != "nn.conv2d" or step.binding.attrs["data_layout"] != "NHWC" or dtype_of(step.result) not in FLOATS:
        return None
    sizes = (*shape_of(step.operands[0]), *shape_of(step.result))
    if not isinstance(step.operands[1], Constant) or not all(isinstance(size, int) and size > 0 for size in sizes):
        return None
    return ConvolutionGeometry.of_step(step)


def _join(chain: Sequence[Group]) -> Group:
    return Group(
        [step for group in chain for step in group.steps],
        None,
        anchored=True,
        results={value for group in chain for value in group.results},
        reads={value for group in chain for value in group.reads},
        chain=tuple(chain),
    )
