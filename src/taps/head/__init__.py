"""The label head: predictors fitted to the labels in closed form, mixed by how well each predicts them.

No torch: arrays in, arrays out, in double precision on the host.
"""
