"""The commands of ``byoc``, one file each."""
