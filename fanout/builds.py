"""Which code this is."""

from importlib.metadata import PackageNotFoundError, version


def build() -> str:
    """The version of this code, told in the row of a worker."""
    try:
        return version("temporal-fanout")
    except PackageNotFoundError:
        return "source"
