"""byoc_core.artifact."""
