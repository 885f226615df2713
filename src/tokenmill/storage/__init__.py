"""Where files lie, and what it takes to publish one whole or not at all."""
