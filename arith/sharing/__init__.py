"""Send results to others, and check what others send."""
