"""Attention as one tiled kernel: scores, scale, mask, softmax and values of a few queries at a time.

Keys and values are packed into panels first, once for all queries. No tensor of scores exists, unless it is a result.
"""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, ceildiv, dim_min, product, total
from byoc_core.ir import Binding

from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_block import AttentionBlock, AttentionPlan
from byoc_ccompiler.kernels.axis_view import MAX_WORKERS, share_ps
from byoc_ccompiler.kernels.blocks import pack_function
from byoc_ccompiler.kernels.epilogue import index_term
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["FAMILY"]

_EXP_PS = 600
"""Estimated picoseconds of one score's softmax."""

_PACK_PS = 400
"""Estimated picoseconds to pack one element."""


def _reject(binding: Binding) -> Rejection | None:
    """Refuses numbers of heads of which only running shows whether one divides the other."""
    heads, groups = operand_shape(binding, 0)[1], operand_shape(binding, 1)[1]
    are_known = isinstance(heads, int) and isinstance(groups, int)
    # What is recognised as attention may have any number of heads, but as many groups, or a known part of them.
    if not are_known and (groups == 0 or heads % groups != 0):
        return Rejection("dynamic-shape", "nn.attention is compiled for known numbers of heads")
    return reject_non_floats(binding)


def _write(kernel: Kernel) -> None:
    """Writes the kernel of ``nn.attention``."""
    (step,) = kernel.group.steps
    plan, dtype = AttentionPlan.of_kernel(kernel, step), dtype_of(step.operands[0])
    mine, blocks = total(plan.arrays.values()), ceildiv(plan.steps, plan.rows)
    count, packed = product((plan.batch, plan.heads, blocks)), product((plan.batch, plan.groups, plan.panels))
    workers = dim_min(count, MAX_WORKERS)
    memory = kernel.scratch_memory(packed if plan.is_local else packed + workers * mine, dtype)
    item, worker = c.Variable("item"), c.Variable("worker")
    b, h, block = places = [c.Variable(name) for name in ("b", "h", "block")]
    found = c.unravelled(item, (plan.batch, plan.heads, blocks))
    pair = b * plan.groups + h // (plan.heads // plan.groups if plan.groups != 0 else 1)
    own = None if plan.is_local else c.Address(memory, worker * mine + packed)
    call = AttentionBlock(kernel, plan, (b, h, block * plan.rows)).call(c.Address(memory, pair * plan.panels), own)
    body = (*(c.Let(*index) for index in zip(places, found, strict=True)), call)
    scores = plan.length * plan.rows
    item_ps = scores * (plan.size + plan.width) * multiply_add_ps(kernel.unit, dtype) + scores * _EXP_PS
    if plan.is_local:
        loop = c.For(item, c.Size(0), c.Size(count), body, kind=c.LoopKind.PARALLEL, round_ps=item_ps)
    else:
        items, share = (c.For(item, worker, c.Size(count), body, step=MAX_WORKERS),), share_ps(count, item_ps)
        loop = c.For(worker, c.Size(0), c.Size(workers), items, kind=c.LoopKind.PARALLEL, round_ps=share)
    kernel.finish_block((_packing(kernel, step, plan, memory), loop))


def _packing(kernel: Kernel, step: Step, plan: AttentionPlan, memory: c.Buffer) -> c.For:
    """Return the loop that brings keys and values of all heads into panels."""
    pair, n, to = c.Variable("pair"), c.Variable("n"), c.Buffer("to", memory.dtype, c.MemoryAccess.WRITE)
    b, g = pair // plan.groups, pair % plan.groups
    callee = pack_function(kernel, memory.dtype, plan.columns)

    def packed(
        operand: int, start: c.Expression, steps: tuple[Dim, ...], depth: Dim, width: Dim, panel: c.Expression
    ) -> c.For:
        source = kernel.source(step.operands[operand], "qkvm"[operand])
        count = c.index_min(c.Size(width) - n, plan.columns)
        places = (c.Address(source, start + n * steps[1]), *map(c.Size, (*steps, depth)), count, c.Address(to, panel))
        return c.For(n, c.Size(0), c.Size(width), (c.Evaluate(c.Call(callee, places)),), step=plan.columns)

    key, value, *masks = map(kernel.strides, step.operands[1:])
    body: list[c.Statement] = [
        c.Alias(to, memory, pair * plan.panels),
        packed(1, b * key[0] + g * key[1], key[:1:-1], plan.size, plan.length, n * plan.depth),
        packed(2, b * value[0] + g * value[1], value[2:], plan.length, plan.width, n * plan.length + plan.key_panels),
    ]
    if plan.has_mask:
        dims, strides = (1, 1, 1, *shape_of(step.operands[3]))[-4:], (0, 0, 0, *masks[0])[-4:]
        start = index_term(b, dims[0], plan.batch, strides[0])
        body.append(packed(3, start, (0, strides[3]), 1, plan.length, n * plan.depth + plan.size * plan.columns))
    pairs, pair_ps = plan.batch * plan.groups, plan.panels * _PACK_PS
    return c.For(pair, c.Size(0), c.Size(pairs), tuple(body), kind=c.LoopKind.PARALLEL, round_ps=pair_ps)


def _require_attention(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    query, key, value, *masks = (shape_of(operand) for operand in step.operands)
    require_equal_sizes(scope, step, 1, key, (query[0], *key[1:3], query[3]))
    require_equal_sizes(scope, step, 2, value, (query[0], *key[1:3], value[3]))
    names = step.binding.op.operand_names(len(step.operands))
    for name, mask in zip(names[3:], masks, strict=True):
        scope.require_broadcast(step.op, name, mask, (*query[:3], key[2]))


def _access(step: Step, index: int) -> Access:
    return Access.ANY


FAMILY = KernelFamily(
    frozenset({"nn.attention"}), _reject, _write, require=_require_attention, reads=_access, writes=_access
)
"""Attention."""
