"""Handlers without servers: definitions, outcomes, the runner, encoding, and items on their way in."""
