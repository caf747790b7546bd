"""Whether a model computes what another implementation of it computes, and where not.

Both sides go through the network together, one block at a time, so that neither is ever in memory as a whole:

    probe.py          what is given to both: documents, and how ours lie in a batch
    reference.py      the reference: `transformers`, in float32 on a CPU
    native.py         our side; also the other side, where two of our models are compared
    lockstep.py       both, block by block, and every difference on the way
    statistics.py     what is measured of two sets of logits
    tolerance.py      how much may differ, by compute dtype
    culprit.py        the first value that differs, and the tensors behind it
    report.py         the result: `report.json`, `report.md`, and page.py `report.html`
    check.py          all of it, for `zoo parity`
"""
