"""byoc_core.runtime."""
