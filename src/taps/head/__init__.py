"""The label head: predictors fitted to the labels in closed form, mixed by how well each predicts them.

In double precision. Learning is numpy's, on the host; seeing and predicting is one code for numpy's arrays
and, beside a model on a GPU, torch's tensors (`arrays`, `on_device`).
"""
