"""byoc_core.kernels."""
