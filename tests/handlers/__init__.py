"""Handlers that the tests run, in modules that a real worker process imports."""
