"""byoc_core.plugin."""
