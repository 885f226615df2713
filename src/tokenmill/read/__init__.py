"""Stage 2, read: a part of a file becomes blocks, a block becomes documents."""
