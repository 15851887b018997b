"""Faults of ``byoc-ccompiler`` where it computes: windows, norms, recurrence, attention, sums."""

from __future__ import annotations

from conformance.tests.planted_faults.fault import PlantedFault

__all__ = ["FAULTS_OF_CCOMPILER_SUMS"]


def _fault(name: str, file: str, before: str, after: str, description: str, *tests: str) -> PlantedFault:
    return PlantedFault(name, "ccompiler", f"byoc_ccompiler/{file}", before, after, description, tests)


FAULTS_OF_CCOMPILER_SUMS = (
    _fault(
        "cc-avg-pool-counts-the-overhang",
        "kernels/pooling_windows.py",
        'reach = f"({size} + {self.end - 1} - {start}) / {self.dilation} + 1"',
        'reach = f"{self.window}"',
        "A mean with padding counts what `ceil_mode` adds beyond the padding.",
        "L2-op[nn.avg_pool*]",
        "L2-onnx[averagepool]",
    ),
    _fault(
        "cc-pool-skips-too-few-dilated-taps",
        "kernels/pooling_windows.py",
        "{start} < 0 ? ({self.dilation - 1} - {start}) / {self.dilation} : 0;",
        "{start} < 0 ? -{start} / {self.dilation} : 0;",
        "A dilated window that begins in the padding, not by a multiple of the dilation, reads before the image.",
        "L2-op[nn.max_pool1d]",
        "L2-op[nn.max_pool3d]",
        "L2-op[nn.lp_pool*]",
        "L2-op[nn.avg_pool*]",
        "L2-onnx[lppool]",
    ),
    _fault(
        "cc-pool-chunks-share-a-place",
        "kernels/pooling_rows.py",
        '{out} + {_place(out_steps, [batch, *indices])} + c0;"',
        '{out} + {_place(out_steps, [batch, *indices])};"',
        "A pooling, channels last, of more than 256 channels writes all chunks over the first.",
        "L2-op[nn.max_pool*]",
        "L2-op[nn.adaptive_*]",
    ),
    _fault(
        "cc-cumsum-exclusive-fails-in-reverse",
        "kernels/cumulative.py",
        "new = f\"from[{'before' if exclusive else 'here'} + k]\"",
        "new = f\"from[{'before' if exclusive and not reverse else 'here'} + k]\"",
        "A cumulative sum that is exclusive and in reverse adds the element itself.",
        "L2-op[cumsum]",
        "L2-op[cumprod]",
        "L2-onnx[cumsum]",
    ),
    _fault(
        "cc-gru-scratch-is-short",
        "kernels/recurrence.py",
        "scratch = width + hidden * (num_states + 2)",
        "scratch = width + hidden * (num_states + 1)",
        "A GRU has too little scratch memory where the reset gate comes before the matrix.",
        "L2-op[nn.gru]",
        "L2-onnx[gru]",
        "L4-permitted-workspace",
    ),
    _fault(
        "cc-gru-reset-spares-the-bias",
        "kernels/recurrence.py",
        "gates[{size} + k] * ({{name}}_dot({inner.format(operand='state')}) + shift[2 * {size} + k])",
        "(gates[{size} + k] * {{name}}_dot({inner.format(operand='state')}) + shift[2 * {size} + k])",
        "With `linear_before_reset` the reset gate does not multiply the bias.",
        "L2-op[nn.gru]",
        "L2-onnx[gru]",
    ),
    _fault(
        "cc-attention-scales-queries-in-place",
        "kernels/attention_rows.py",
        """\
        f"for (int64_t t = 0; t < {c_dim(length)}; ++t) {{",
        f"  for (int64_t row = 0; row < {count}; ++row) {{",
        (
            f"    mine[row * {c_dim(length)} + t] = {_factor(step, dtype)} * "
            f"{{name}}_dot(from + row * {c_dim(size)}, keys + t * {c_dim(size)}, {c_dim(size)});"
        ),
        "  }",
        "}",
""",
        """\
        f"{ctype} *const scaled = ({ctype} *)from;",
        f"for (int64_t t = 0; t < {count} * {c_dim(size)}; ++t) scaled[t] *= {_factor(step, dtype)};",
        f"for (int64_t t = 0; t < {c_dim(length)}; ++t) {{",
        f"  for (int64_t row = 0; row < {count}; ++row) {{",
        (
            f"    mine[row * {c_dim(length)} + t] = "
            f"{{name}}_dot(from + row * {c_dim(size)}, keys + t * {c_dim(size)}, {c_dim(size)});"
        ),
        "  }",
        "}",
        f"for (int64_t t = 0; t < {count} * {c_dim(size)}; ++t) scaled[t] /= {_factor(step, dtype)};",
""",
        "An attention that gives its scores scales the queries in place and back, which leaves a bit wrong.",
        "L2-op[nn.attention]",
        "L2-onnx[attention]",
        "L4-inputs-unwritten",
        "L4-read-only-inputs",
    ),
    _fault(
        "cc-attention-mask-of-the-first-head",
        "kernels/attention_rows.py",
        'places = (f"(head / {c_dim(heads)})", f"(head % {c_dim(heads)})"',
        'places = (f"(head / {c_dim(heads)})", f"(head / {c_dim(heads)})"',
        "A mask for each head is read at the number of the image.",
        "L2-op[nn.attention]",
        "L2-onnx[attention]",
    ),
    _fault(
        "cc-long-columns-lose-a-round",
        "kernels/row_columns.py",
        "for (int64_t first = 0; first < {c_dim(size)}; first += {_ROUNDS}) {{",
        "for (int64_t first = 0; first + {_ROUNDS} <= {c_dim(size)}; first += {_ROUNDS}) {{",
        "A sum of more than 256 rows leaves out those behind the last 64.",
        "L2-op[sum]",
        "L2-op[mean]",
        "L4-dynamic-shapes",
    ),
    _fault(
        "cc-large-sum-loses-a-block",
        "kernels/row_lines.py",
        "blocks = (size + (_BLOCK - 1)) // _BLOCK",
        "blocks = size // _BLOCK",
        "A sum of a whole tensor of more than 65536 elements leaves out the last block, which is not full.",
        "L2-op[sum]",
        "L2-op[mean]",
        "L4-dynamic-shapes",
    ),
    _fault(
        "cc-maximum-loses-nan-in-the-tail",
        "kernels/row_extremes.py",
        "    sum += *(const {name}u *)(x + count - {lanes});\n",
        "",
        "A NaN behind the last whole register of a row is no maximum.",
        "L2-op[max]",
        "L2-op[min]",
        "L4-any-number[*]",
    ),
    _fault(
        "cc-variance-by-difference-of-squares",
        "kernels/composites.py",
        '    square = to.emit("multiply", centred, centred, name="square")\n'
        '    variance = to.emit("mean", square, axis=axes, keepdims=True, name="variance")\n',
        '    square = to.emit("multiply", x, x, name="square")\n'
        '    variance = to.emit("mean", square, axis=axes, keepdims=True, name="variance")\n'
        "    if centre:\n"
        "        mean = to.steps[-4].result\n"
        '        square = to.emit("multiply", mean, mean, name="square")\n'
        '        variance = to.emit("subtract", variance, square, name="variance")\n',
        "A variance is the mean of squares less the square of the mean, which cancel where the mean is large.",
        "L2-op[nn.layer_norm]",
        "L2-op[nn.instance_norm]",
        "L2-onnx[layernormalization]",
    ),
    _fault(
        "cc-batch-norm-epsilon-is-the-default",
        "kernels/composites.py",
        'spread_.dtype.type(float(str(to.step.binding.attrs["epsilon"]))))',
        "spread_.dtype.type(1e-5))",
        "Batch normalisation by constants takes the default for epsilon.",
        "L2-op[nn.batch_norm]",
        "L2-onnx[batch_normalization]",
        "L2-pattern",
    ),
    _fault(
        "cc-rms-norm-of-the-last-axis",
        "kernels/composites.py",
        "_norm(to, _axes(to.step), _axes(to.step), centre=False)",
        "_norm(to, _axes(to.step)[-1:], _axes(to.step), centre=False)",
        "The root mean square over several axes is that of the last one.",
        "L2-op[nn.rms_norm]",
        "L2-onnx[rmsnormalization]",
    ),
    _fault(
        "cc-rotation-of-half-the-head",
        "kernels/rotary.py",
        'f"k + {c_dim(half)}")',
        'f"k + {c_dim(size // 2)}")',
        "A rotary embedding of a part of the head pairs elements half a head apart.",
        "L2-op[nn.rotary_embedding]",
        "L2-onnx[rotaryembedding]",
    ),
    _fault(
        "cc-even-window-leans-back",
        "kernels/lrn.py",
        "byoc_max(-{(size - 1) // 2}, -(row % {channels}));",
        "byoc_max(-{size // 2}, -(row % {channels}));",
        "A window of an even number of channels has one more in front.",
        "L2-op[nn.lrn]",
        "L2-onnx[lrn]",
    ),
    _fault(
        "cc-conv-stride-of-the-first-axis",
        "kernels/convolution_loops.py",
        "stride, padding, kind = loops.strides[last], loops.padding[last]",
        "stride, padding, kind = loops.strides[0], loops.padding[last]",
        "The stride of the first axis is taken along the last one.",
        "L2-op[nn.conv2d]",
        "L2-op[nn.conv3d]",
        "L2-op[nn.conv*d_transpose]",
        "L2-onnx[conv]",
    ),
    _fault(
        "cc-conv-dilation-of-the-first-axis",
        "kernels/convolution_loops.py",
        'size, tap = c_dim(loops.sizes[last]), f"k{last} * {loops.dilation[last]}"',
        'size, tap = c_dim(loops.sizes[last]), f"k{last} * {loops.dilation[0]}"',
        "The dilation of the first axis is taken along the last one.",
        "L2-op[nn.conv2d]",
        "L2-op[nn.conv3d]",
        "L2-op[nn.conv*d_transpose]",
        "L2-onnx[conv]",
    ),
    _fault(
        "cc-depthwise-reads-a-row-too-far",
        "kernels/depthwise.py",
        "row >= 0 && row + {block.in_rows} <= {height}",
        "row >= 0 && row + {block.in_rows} <= {height} + 1",
        "A depthwise convolution, channels last, reads one row beyond the image at its lower border.",
        "L2-op[nn.conv2d]",
        "L2-pattern",
        "L4-outputs-anywhere[*]",
    ),
    _fault(
        "cc-epilogue-repeats-the-first-row",
        "kernels/epilogue.py",
        "        elif stride != expected:\n            return None\n",
        "        elif stride not in (expected, *([stride] if step == 0 else [])):\n            return None\n",
        "Behind a product a row for each matrix of a batch counts as one row for all.",
        "L2-op[matmul]",
        "L2-pattern",
        "L2-random-graphs[*]",
    ),
)
