"""Names that the runner and the plugin share; the runner's interpreter need not have pytest."""

from __future__ import annotations

# The file to which the plugin appends results, a line of JSON each.
RESULTS_VARIABLE = "GPU_KIT_RESULTS"
