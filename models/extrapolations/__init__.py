"""One file a change at test time: of frequencies (pi, ntk, ntk-dynamic, yarn) or of randomized
positions (plain, even, redraw). Training never sees them."""
