"""Work spread over a Ray cluster: the runs of an evaluation, the parts of source statistics."""
