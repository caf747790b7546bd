"""From files of rows to batches of token ids: what fine-tuning reads.

sources -> shapes -> examples -> dataset -> survey -> packing -> iterator, each a file that knows nothing of those after
it. `Dataset` has every row as an example, `survey` looks at each of them once, `Batches` hands them out.
"""
