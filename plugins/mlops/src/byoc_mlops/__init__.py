"""Classical machine learning in byoc: the operators of ONNX's domain ``ai.onnx.ml`` on numbers.

``linear``, ``preprocessing``, ``encoders``, ``trees`` and ``support_vectors`` import the operators into ops of the
core, so that backends compute the ops; :mod:`byoc_mlops.importers` is the plugin of the importers. ``ops`` defines the
ops missing in the core, with kernels in ``tree_kernel``, ``key_kernel`` and ``coupling_kernel``. The halves of the
backend are ``backend``, which claims these ops, and ``runtime``, which runs the kernels and imports nothing of the
compiler.
"""
