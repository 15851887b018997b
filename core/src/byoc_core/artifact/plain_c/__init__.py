"""Export of an executable as plain C: sources without heap, with one planned workspace, for any C11 compiler.

:meth:`byoc_core.artifact.Executable.export_c` is the entry. The parts: :mod:`obstacles` (everything without a C form),
:mod:`layout` (the workspace), :mod:`function_text` (a function of the program), :mod:`model_text` (header and source),
:mod:`constants`, :mod:`test_vector` (inputs with expected outputs), :mod:`project` (build files).
"""
