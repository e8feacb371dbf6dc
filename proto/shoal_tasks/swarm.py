"""A manifest's task families as specs, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from shoal_tasks.errors import FamilyError
from shoal_tasks.spec import AnswerFormat, FamilySpec, canonical_config, config_digest
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, TaskFamily
from shoal_wire.rules import BatchRules


def specs_of(manifest: Manifest) -> tuple[FamilySpec, ...]:
    """Return the manifest's families as specs that this installation can regenerate and score.

    Raises:
        ManifestError: a family that this version does not know or will not run.
    """
    try:
        return tuple(_spec(family) for family in manifest.families)
    except FamilyError as error:
        raise ManifestError(f"swarm {manifest.swarm_name!r}: {error}") from None


def families_of(specs: Iterable[FamilySpec]) -> tuple[TaskFamily, ...]:
    """Return specs in the form in which a manifest states them."""
    return tuple(
        TaskFamily(
            name=spec.name,
            generator=spec.generator,
            config_json=canonical_config(spec),
            weight=spec.weight,
            verifier=spec.verifier,
            verifier_version=spec.verifier_version,
            answer_format=spec.answer_format.value,
        )
        for spec in specs
    )


def rules_of(manifest: Manifest) -> BatchRules:
    """Return the manifest's rules with the digests by which batches name its families.

    Raises:
        ManifestError: as `specs_of`.
    """
    return BatchRules(
        manifest=manifest,
        config_digests={spec.name: config_digest(spec) for spec in specs_of(manifest)},
    )


def _spec(family: TaskFamily) -> FamilySpec:
    return FamilySpec(
        name=family.name,
        generator=family.generator,
        config=json.loads(family.config_json),
        weight=family.weight,
        verifier=family.verifier,
        verifier_version=family.verifier_version,
        answer_format=AnswerFormat(family.answer_format),
    )
