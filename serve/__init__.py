"""Serving: the engine, its sampler, and the text of what it makes."""
