"""The routes under /v1, one file a concern."""
