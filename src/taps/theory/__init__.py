"""The paper's two propositions as simulations of thousands of streams at once."""
