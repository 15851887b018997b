"""The building blocks of the numpy reference kernels.

The kernel of an op stands beside the op's definition, in the op's family (:mod:`byoc_core.opset.families`). A kernel
takes arrays and the op's normalised attributes (sizes as ints), and returns an array, or a tuple of arrays if the op
has several results. A kernel computes in the dtype of the operands (floating-point types below 32 bits: in float32,
rounded once). The result has the shape and dtype of the op's type rule, and may share memory with an operand. A kernel
never writes to operands, and never warns. Kernels serve the host backend and constant folding, and are the oracle for
testing backends.
"""
