"""Sphinx configuration. The reference is read from the docstrings, for which Django must be set up."""

import sys
from pathlib import Path

import django
from django.conf import settings

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "drawings")]
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.contenttypes", "djqueue"],
    SECRET_KEY="only-for-building-the-documentation-of-djqueue-0123456789",
    USE_TZ=True,
)
django.setup()

import djqueue  # noqa: E402

project = "djqueue"
author = "djqueue contributors"
copyright = author
version = release = djqueue.__version__
extensions = ["sphinx.ext.autodoc", "pages"]
exclude_patterns = ["_build"]
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"
html_theme = "furo"
html_title = f"djqueue {release}"
html_static_path = ["_static"]
html_css_files = ["djqueue.css"]
