"""Training of the blocks over a frozen base."""
