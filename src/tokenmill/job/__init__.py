"""A whole job: prepare it, let an engine run its units, finish it, and tell how far it is."""
