"""One unit through all its stages: the only thing that engines run."""
