"""An OpenAI-compatible server for a base and its anchored models, with a playground."""
