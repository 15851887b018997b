"""byoc_core.frontend."""
