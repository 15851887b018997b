"""Who took each op, and why not another: read from the partitioned module and the refusals."""
