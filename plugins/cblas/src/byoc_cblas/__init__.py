"""Products of matrices by a CBLAS. Read in this order: ``layer``, ``lowering``, ``source``, ``backend``.

``library`` finds the BLAS while compiling. ``wheel`` finds the file of OpenBLAS's wheel, on running machines too, and
imports nothing of the compile half. The C is in the folder ``c``; regions are lowered, so the core runs the result.
"""
