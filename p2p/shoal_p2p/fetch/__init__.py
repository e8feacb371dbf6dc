"""Batches asked for by id: what gossip did not bring is pulled here, and given to others."""
