"""What workers do: the range activity with its engine, and the short activities of the parent workflow."""
