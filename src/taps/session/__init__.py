"""One stream of images through a learner: the loop, its record, resuming."""
