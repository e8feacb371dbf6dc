"""The bootstrap peer: a stable meeting point that relays gossip and trains nothing."""
