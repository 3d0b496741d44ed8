"""The documentation as a site: `make docs`. Its sources are the Markdown pages of this repository, where they lie."""

project = "paramnoise"
author = "the paramnoise authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    *("docs/**.md", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"),
    *("results/*/README.md", "experiments/README.md"),
]
html_theme = "furo"
html_title = "paramnoise"
html_extra_path = ["../.cache/docs"]
"""The report, and a first page that leads here."""
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 4
default_role = "code"
"""Docstrings have names in single backticks."""
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
napoleon_numpy_docstring = False


def name_results(app, docname, source):
    """Adds to the title of a README of results which results these are."""
    folder, _, name = docname.rpartition("/")
    if folder.startswith("results/") and name == "README":
        source[0] = source[0].replace("# How", f"# {folder.removeprefix('results/')}: how", 1)


def setup(app):
    """Is called by Sphinx."""
    app.connect("source-read", name_results)
