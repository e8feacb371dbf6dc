"""Who is there, and of which swarm: discovery, peer lists, manifest, mDNS, relays, reach."""
