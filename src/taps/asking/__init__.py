"""Which image is asked about, how often, and which labelled images are kept. No torch.

Read first: `dynamic.py` (Algorithm 1) and `buffer.py` (Algorithm 2); `paced.py` is the default.
Must not know: models and methods: numbers come in, decisions go out.
"""
