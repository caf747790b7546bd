"""The decode engine, on the same models."""
