"""Text and facts from PDF, HTML, Markdown and plain text files."""
