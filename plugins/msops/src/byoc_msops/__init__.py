"""ONNX Runtime's operators in byoc: importers of the domain ``com.microsoft``.

Each module imports a family of operators into ops of the core, so that backends compute the ops.
:mod:`byoc_msops.importers` joins the tables, and is the plugin.
"""
