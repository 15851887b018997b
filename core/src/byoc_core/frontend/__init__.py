"""Front ends: packages to convert model files into IR modules, each loaded on first use."""
