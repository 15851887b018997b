"""The kernel families: the accepted forms of each op, and the C for these."""
