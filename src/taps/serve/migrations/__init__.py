"""How the store's tables came to their present form, step by step."""
