"""Reading the output back."""
