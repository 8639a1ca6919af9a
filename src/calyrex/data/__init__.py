"""Training data: chat files and the built-in rule corpus."""
