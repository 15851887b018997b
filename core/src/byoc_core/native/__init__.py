"""Native code: finding C compilers, building and caching shared libraries, loading compiled functions."""
