"""Faults of ``byoc-ccompiler`` in placing elements: indices, borders, scratch memory."""

from __future__ import annotations

from conformance.tests.planted_faults.fault import PlantedFault

__all__ = ["FAULTS_OF_CCOMPILER_LOOPS"]


def _fault(name: str, file: str, before: str, after: str, description: str, *tests: str) -> PlantedFault:
    return PlantedFault(name, "ccompiler", f"byoc_ccompiler/{file}", before, after, description, tests)


FAULTS_OF_CCOMPILER_LOOPS = (
    _fault(
        "cc-argmax-takes-the-last-nan",
        "kernels/extreme_indices.py",
        "count - 1 - index if takes_last else index",
        "count - 1 - index",
        "Of several NaN the last one counts as the largest element.",
        "L2-op[argm*]",
        "L2-onnx[argm*]",
        "L4-any-number[*]",
    ),
    _fault(
        "cc-topk-breaks-ties-at-will",
        "kernels/ordering.py",
        'c.Return(c.Binary("||", self.is_before(left, right), is_first))',
        "c.Return(self.is_before(left, right))",
        "Equal elements come in the order in which a heap holds them.",
        "L2-op[topk]",
        "L2-onnx[topk]",
    ),
    _fault(
        "cc-workers-share-scratch",
        "kernels/axes.py",
        "Alias(line_memory, memory, worker * scratch)",
        "Alias(line_memory, memory, worker * 0)",
        "Threads that work on lines write to the same scratch memory.",
        "L4-thread-numbers",
        "L2-op[sort]",
        "L2-op[topk]",
        "L4-re-entrant",
        "L4-deterministic",
    ),
    _fault(
        "cc-take-clips-no-negative-index",
        "kernels/indexing.py",
        "c.index_max(c.index_min(c.Cast(index, c.INDEX), size - 1), 0)",
        "c.index_min(c.Cast(index, c.INDEX), size - 1)",
        "An index below 0 of `take` in mode `clip` reads before the tensor.",
        "L2-op[take]",
        "L2-onnx[gather]",
        "L4-errors-told",
    ),
    _fault(
        "cc-take-along-a-later-axis",
        "kernels/indexing.py",
        "else row // count * size",
        "else row % outer * size",
        "Several indices along another axis than the first take elements of other rows.",
        "L2-op[take]",
        "L2-onnx[gather]",
    ),
    _fault(
        "cc-tuples-of-negative-indices",
        "kernels/indexing.py",
        "along = [_resolved(index_buffer[row * depth + component], size)",
        "along = [c.Cast(index_buffer[row * depth + component], c.INDEX)",
        "A negative index of `gather_nd` or `scatter_nd` counts from the front.",
        "L2-op[gather_nd]",
        "L2-op[scatter_nd]",
        "L2-onnx[gathernd]",
        "L2-onnx[scatternd]",
    ),
    _fault(
        "cc-one-hot-along-an-inner-axis",
        "kernels/indexing.py",
        "index_buffer[row // depth * inner + k]",
        "index_buffer[row // depth + k]",
        "One-hot vectors along another axis than the last take the indices of a neighbour.",
        "L2-op[one_hot]",
        "L2-onnx[onehot]",
    ),
    _fault(
        "cc-scatter-adds-integers-to-multiply",
        "kernels/indexing.py",
        "else element_product(old, new)",
        "else (element_product if old.type.is_float else element_sum)(old, new)",
        "Updates of integers are added where they should be multiplied.",
        "L2-op[scatter_*]",
        "L2-onnx[scatter*]",
    ),
    _fault(
        "cc-resize-rounds-ties-up",
        "kernels/resizing.py",
        '"half_down": _call(np.ceil, position - 0.5)',
        '"half_down": _call(np.floor, position + 0.5)',
        "Nearest neighbours of places in the middle are taken above in place of below.",
        "L2-op[nn.resize]",
        "L2-onnx[resize]",
        "L2-onnx[upsample]",
    ),
    _fault(
        "cc-einsum-result-in-order-of-occurrence",
        "kernels/einsum.py",
        "    result, sizes = equation.result, equation.sizes\n",
        """\
    result, sizes = equation.result, equation.sizes
    if "->" not in str(step.binding.attrs["equation"]):
        result = tuple(label for label in sizes if label in result)
""",
        "Without an arrow the letters of the result come as they occur, not in alphabetical order.",
        "L2-op[einsum]",
        "L2-onnx[einsum]",
    ),
    _fault(
        "cc-reflection-bounces-once",
        "kernels/data_movement.py",
        'return c.index_min(c.index_mod(at, period), c.index_mod(c.Unary("-", at), period))',
        'return c.Select(at.compare("<", 0), c.Unary("-", at), c.Select(at.compare(">=", size), period - at, at))',
        "Padding by reflection that is wider than the tensor reads outside of it.",
        "L2-op[nn.border_pad]",
        "L2-onnx[pad]",
    ),
    _fault(
        "cc-roll-turns-once",
        "kernels/data_movement.py",
        "c.index_mod(indices[axis] - shift, shape[axis])",
        "(indices[axis] - shift + shape[axis]) % shape[axis]",
        "A roll by more than the size of the axis reads before the tensor.",
        "L2-op[roll]",
    ),
    _fault(
        "cc-block-scales-of-the-first-row",
        "kernels/elementwise.py",
        "(row // view.size * blocks + row % view.size // block) * view.inner + k",
        "(row % view.size // block) * view.inner + k",
        "Blocks that share a scale along a middle axis have those of the first image.",
        "L2-op[quantize]",
        "L2-op[dequantize]",
        "L2-onnx[quantizelinear]",
        "L2-onnx[dequantizelinear]",
    ),
    _fault(
        "cc-transpose-leaves-out-last-rows",
        "kernels/transposes.py",
        'end = c.Select(tile.compare("==", height // lanes - 1), c.Size(height), (tile + 1) * lanes)',
        "end = (tile + 1) * lanes",
        "A transposition by tiles leaves out rows behind the last whole tile.",
        "L2-op[permute_dims]",
        "L4-outputs-filled",
        "L2-onnx[transpose]",
    ),
    _fault(
        "cc-symbol-is-never-one",
        "kernels/copies.py",
        'return term if dim == size else c.Select(c.Size(dim).compare("==", 1), c.Size(0), term)',
        "return term",
        "A symbolic size that turns out to be 1 is not repeated.",
        "L2-op[add]",
        "L4-dynamic-shapes",
        "L2-random-graphs[*]",
    ),
    _fault(
        "cc-workspace-reused-while-read",
        "codegen.py",
        "plan_block([buffer.interval for buffer in buffers], ",
        "plan_block([SymbolicInterval(b.interval.nbytes, b.interval.start, "
        "max(b.interval.start, b.interval.end - (not isinstance(b.interval.nbytes, int)))) for b in buffers], ",
        "With symbolic sizes a kernel may write where it reads.",
        "L2-random-graphs[*]",
        "L4-dynamic-shapes",
        "L4-permitted-workspace",
    ),
    _fault(
        "cc-workspace-does-not-grow",
        "codegen.py",
        "plan_block([buffer.interval for buffer in buffers], ",
        "plan_block([b.interval if isinstance(b.interval.nbytes, int) else "
        "SymbolicInterval(buffers[0].interval.nbytes, b.interval.start, b.interval.end) for b in buffers], ",
        "With symbolic sizes a larger tensor gets the memory of a smaller one.",
        "L2-random-graphs[*]",
        "L4-dynamic-shapes",
        "L4-permitted-workspace",
    ),
    _fault(
        "cc-sort-flushes-its-input",
        "kernels/ordering.py",
        "            c.Let(order, ",
        "            *[c.RawStatement(\n"
        '                ("for (int64_t n = 0; n < {0}; ++n) {{",\n'
        '                 "  if (!isnormal((&{2})[n * {1}]) && fabs((double)(&{2})[n * {1}]) < 1)",\n'
        '                 "    memset((void *)(&{2} + n * {1}), 0, sizeof {2});", "}}"),\n'
        "                (c.Size(view.size), c.Size(view.inner), keys[0]),\n"
        '            ) for _ in range(source.dtype.startswith("float"))],\n'
        "            c.Let(order, ",
        "A sort sets subnormal numbers and -0.0 of its input to 0.",
        "L2-op[sort]",
        "L2-op[argsort]",
        "L4-inputs-unwritten",
        "L4-read-only-inputs",
        "L4-any-number[*]",
    ),
)
