"""Benchmarks: what a model is asked, and the exact verdict on what it answers."""
