"""The site, made by ``make site``.

The source folder is the root of the repository, so links between pages are the same here and on GitHub.  Nothing is
downloaded.
"""

import re

import atomr_native

project = "atomr_native"
version = release = atomr_native.__version__
copyright = "the atomr_native contributors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "atomr_native/**/DESIGN.md", "cython/**/DESIGN.md",
]  # fmt: skip
exclude_patterns = [".*", "bench", "build", "dist", "examples", "tests"]

html_theme = "furo"
html_title = "atomr_native"
html_extra_path = ["site"]  # index.html, which leads to docs/index.html
html_copy_source = False

myst_heading_anchors = 6  # as on GitHub
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autoclass_content = "class"
python_maximum_signature_line_length = 100
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
default_role = "py:obj"
toc_object_entries_show_parents = "hide"


def _split_attributes(_app, _what, _name, _object, _options, lines):
    """Repeat an entry such as ``free, limit : int`` of "Attributes" for each name; Napoleon takes it for one."""
    made, inside, index = [], False, 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if index < len(lines) and re.fullmatch(r"-{3,}", lines[index]):
            inside = line.strip() == "Attributes"
        names = re.fullmatch(r"(\w+(?:, \w+)+)( : .*)?", line) if inside else None
        if names is None:
            made.append(line)
            continue
        text = []
        while index < len(lines) and (not lines[index] or lines[index].startswith(" ")):
            text.append(lines[index])
            index += 1
        for name in names[1].split(", "):
            made += [name + (names[2] or ""), *text]
    lines[:] = made


def setup(app):
    """Register the transform."""
    app.connect("autodoc-process-docstring", _split_attributes, priority=100)  # before Napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
