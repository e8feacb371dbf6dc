"""Groups waiting to be drawn: bounded, weighted, leased and consumed. Pure."""
