"""Front ends: what turns model files into IR modules. Each is a package of its own, loaded when it is used."""
