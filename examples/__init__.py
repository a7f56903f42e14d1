"""Examples that run: handlers, the papers that they read, and the demo that puts both to work."""
