"""The sweeper: what it heals, and what it leaves alone."""
