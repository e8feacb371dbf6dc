"""The peers of the swarm: discovery, peer lists, manifest, mDNS, relays, reach."""
