"""From claims to regions: grouping, order, and a function for each group."""
