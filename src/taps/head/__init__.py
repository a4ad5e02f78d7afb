"""The label head: predictors fitted to the labels in closed form, mixed by how well each predicts them.

Everything is in double precision. Learning is in numpy, on the host. Predicting is one code for numpy's
arrays and, beside a model on a GPU, torch's tensors (`arrays`, `on_device`).
"""
