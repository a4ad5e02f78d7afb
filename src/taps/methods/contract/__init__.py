"""What every method promises, one function per promise."""
