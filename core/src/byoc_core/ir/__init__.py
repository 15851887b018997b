"""byoc_core.ir."""
