"""`python -m profiler.definitions > docs/metrics.md` writes the page of the eight metrics anew."""

import sys

from profiler.definitions import page_markdown

sys.stdout.write(page_markdown())
