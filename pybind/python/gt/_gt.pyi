"""The compiled half of the package."""

__version__: str
