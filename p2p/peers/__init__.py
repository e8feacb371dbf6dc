"""Who is there: discovery, peer exchange, DHT, mDNS, relays and reach."""
