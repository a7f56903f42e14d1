"""Long fault injection, by `make chaos`; short parts of it run in every test session."""
