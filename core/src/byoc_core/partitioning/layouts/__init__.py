"""Layouts of values crossing borders of regions."""
