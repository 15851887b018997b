"""byoc_core.vm."""
