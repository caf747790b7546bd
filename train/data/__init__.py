"""From files of rows to batches of token ids: what fine-tuning reads.

sources -> shapes -> examples -> packing -> iterator, each a file that knows nothing of those after it.
"""
