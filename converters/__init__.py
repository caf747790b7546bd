"""Layout tables and the readers, writers and conversions built on them."""
