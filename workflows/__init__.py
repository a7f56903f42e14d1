"""The workflows: a parent for each batch, shards for big ones."""
