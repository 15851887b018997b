"""The configuration of Sphinx for the site; ``docs/site/build.py`` gathers the input."""

from importlib.metadata import version as version_of

project = "byoc"
copyright = "the byoc authors"  # noqa: A001 - Sphinx calls it so
release = version_of("byoc-core")
version = ".".join(release.split(".")[:2])

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"
html_theme = "furo"
html_title = f"byoc {release}"

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # they are shown with the signature, and `pass_` is a link in their markup

# Annotations name types of modules that have no page here; what pages link to is checked.
nitpick_ignore_regex = [("py:.*", ".*")]

# The short name of an annotation may be that of several classes: `Function` is one of the IR and one of generated C.
suppress_warnings = ["ref.python"]
