"""Faults on purpose: between a commit and its answer, on the lines to the servers, and of the servers themselves."""
