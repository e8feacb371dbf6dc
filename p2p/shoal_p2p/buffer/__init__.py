"""The replay buffer: external groups, bounded, sampled by weight, leased and consumed. Pure."""
