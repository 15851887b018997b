"""Views leave regions: ops that only look at memory in another way stand between the calls, not inside them."""
