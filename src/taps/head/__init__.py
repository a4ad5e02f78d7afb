"""The label head: it learns from answers in numpy, and predicts on arrays of numpy or torch.

Read first: `head.py`, then `experts.py` and `mixture.py`.
Must not know: CLIP, views and streams: features come in, probabilities go out.
"""
