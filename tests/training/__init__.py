"""Training followed on both sides."""
