"""The command ``byoc``: one file per command; each command imports its dependencies when run."""
