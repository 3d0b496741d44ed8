"""The version, in a file of its own: whoever writes files names it, also where the package is not installed."""

__version__ = "0.2.0"
