"""One file a model family, found by being here."""
