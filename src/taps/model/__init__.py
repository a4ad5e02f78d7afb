"""The frozen model: it knows no stream, no question and no label.

Read first: `clip/model.py`: two towers that take prompts as arguments and return features.
Must not know: anything above it; a model is given everything it needs.
"""
