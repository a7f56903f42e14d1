"""A module that cannot be imported."""

raise LookupError("no configuration for this service")
