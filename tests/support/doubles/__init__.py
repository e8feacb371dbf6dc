"""Doubles of a node's dependencies, for tests of its components and of programs built on it.

    host = FakeHost(answers={"/shoal/peers/1": answer})    # the test defines peers and replies
    gossip = FakeGossip(peers=2)                           # published messages go into a list
    worker = InstantWorker()                               # a task worker made of arithmetic
    async with open_store(folder / "node.db") as store:    # the real SQL, no flushes, no threads
        outbox = Outbox(store=store, gossip=gossip, …)
    host.connect(peer_id)
    assert await gossip.hear("/topic", data, author=peer_id) == ACCEPT

Whole peers that communicate run on a network in memory, in virtual time, which advances when all
tasks wait:

    async def main() -> None:
        async with memory_network(seed=1) as network:
            ann, ben = await network.hosts(2)
            await ann.dial(ben.listen_addrs()[0])

    in_virtual_time(main)

`FakeHost` and `FakeGossip` are complete `net.interface.Host` and `gossip.interface.Gossip`. The
network in memory is `shoal_lab.simulation`, which `tests/conformance` compares with the real one.
"""
