"""What a label teaches in feature space: closed forms, and a mixture that trusts them as far as they earn it.

No torch: arrays in, arrays out, in double precision on the host.
"""
