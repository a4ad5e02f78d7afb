"""One step on one image: losses, gradients, the labelled memory, the optimiser."""
