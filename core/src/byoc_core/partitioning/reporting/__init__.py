"""The outcome of each op, with reasons: read from the partitioned module and the refusals."""
