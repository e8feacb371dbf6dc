"""Messages to many: topics, meshes and pubsub over py-libp2p, bounded and guarded."""
