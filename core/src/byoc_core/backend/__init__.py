"""byoc_core.backend."""
