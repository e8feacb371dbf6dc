"""Who is there, and of which swarm: discovery, peer lists, manifest, DHT, mDNS, relays, reach."""
