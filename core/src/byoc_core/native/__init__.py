"""byoc_core.native."""
