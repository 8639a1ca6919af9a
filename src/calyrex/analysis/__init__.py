"""Where in the layers of a model the rules of a system prompt live: what moves, what can be read off, what decides."""
