"""What a manifest asks for is tried before it is kept: in the real sandboxed worker."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from shoal_p2p.parts import real_worker
from shoal_p2p.peers import services
from shoal_p2p.peers.manifest_source import ManifestSource
from shoal_p2p.peers.try_out import try_families
from shoal_settings.schema import Settings
from shoal_tasks.families import PRESETS
from shoal_tasks.run_memory import load_manifest
from shoal_tasks.spec import FamilySpec
from shoal_tasks.swarm import families_of
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import make_manifest
from tests.support.nodes import open_test_host

# Ten seconds of a processor: 20 million primes took less than the one allowed on a fast machine.
ENDLESS = FamilySpec(
    name="endless", generator="rotten_oranges", config={"min_n": 3000, "max_n": 3000}
)
HUGE = FamilySpec(name="primes", generator="count_primes", config={"max_n": 2_000_000_000})
FINE = FamilySpec(name="sums", generator="chain_sum", config={"max_terms": 3})


def no_worker(_families: object, _patience: float) -> object:
    raise AssertionError("what a preset has needs no trial")


async def test_the_families_of_presets_are_not_tried() -> None:
    for preset in PRESETS.values():
        await try_families(preset, no_worker)  # type: ignore[arg-type]


async def test_a_strange_family_that_can_be_made_is_taken() -> None:
    await try_families([FINE], real_worker)


@pytest.mark.slow
@pytest.mark.parametrize("family", [ENDLESS, HUGE], ids=lambda one: one.name)
async def test_a_family_without_end_is_refused_in_a_line_and_its_manifest_is_not_kept(
    family: FamilySpec, tmp_path: Path
) -> None:
    theirs = make_manifest("theirs", families_of([family]))
    async with open_test_host() as bootstrap, open_test_host() as host:
        services.serve_manifest(bootstrap, theirs)
        (address, *_) = bootstrap.listen_addrs()
        source = ManifestSource(
            host=host,
            data_dir=tmp_path,
            settings=Settings(bootstrap=(address,)),
            try_out=partial(try_families, make_worker=real_worker),
        )
        await host.dial(address)
        with trio.fail_after(60), pytest.raises(ManifestError) as caught:
            await source.find()
    message = str(caught.value)
    assert family.name in message
    assert "\n" not in message
    assert load_manifest(tmp_path) is None
