"""new_host() without `sec_opt` also accepts /plaintext/2.0.0: no encryption, for any peer that
proposes it."""

import trio
from stock import peer, run, tell


def line(text: str) -> bytes:
    body = text.encode() + b"\n"
    return bytes([len(body)]) + body


async def main() -> int:
    async with peer() as (victim, _):
        port = int(str(victim.get_addrs()[0]).split("/")[4])
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(line("/multistream/1.0.0") + line("/plaintext/2.0.0"))
        answer = b""
        with trio.move_on_after(3):
            while b"plaintext" not in answer and b"na\n" not in answer:
                answer += await stream.receive_some(1000)
        accepted = b"/plaintext/2.0.0" in answer
    return tell(accepted, "/plaintext/2.0.0 was " + ("accepted" if accepted else "refused"))


run(main)
