"""Fanout over HTTP."""
