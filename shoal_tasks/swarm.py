"""Conversion between a manifest's task families and specs."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from shoal_base.extras import how_to_get
from shoal_tasks.bundle import ACCEPTED_FILE, accepted_swarm, can_travel
from shoal_tasks.errors import FamilyError, NewerFamilyError, ServerUnavailable
from shoal_tasks.families import PRESETS
from shoal_tasks.openenv.identity import mark_unavailable
from shoal_tasks.run_differences import SWARM, family_differences, shown
from shoal_tasks.spec import (
    MATH_VERIFY,
    TEXT_ARENA,
    VERIFIER,
    VERIFIER_VERSIONS,
    AnswerFormat,
    FamilySpec,
    digest_of,
)
from shoal_tasks.task_file import load_task_file, load_task_files, server_named_in
from shoal_wire.errors import ManifestError
from shoal_wire.manifest import Manifest, TaskFamily
from shoal_wire.rules import BatchRules
from shoal_wire.types import Digest

log = logging.getLogger(__name__)


def families_here(task_files: Sequence[str]) -> tuple[FamilySpec, ...]:
    """Return the families of the user's task files, without those on unavailable servers.

    Raises:
        ManifestError: a task file cannot be used.
    """
    return tuple(_here_and_away(task_files)[0].values())


def _here_and_away(
    task_files: Sequence[str],
) -> tuple[dict[str, FamilySpec], dict[str, str]]:
    """Return those families by file, and the addresses of unavailable servers by family name."""
    found: dict[str, FamilySpec] = {}
    away: dict[str, str] = {}
    for path in task_files:
        try:
            found[path] = load_task_file(Path(path))
        except ServerUnavailable:
            away.update([server_named_in(Path(path))])
        except FamilyError as error:
            raise ManifestError(str(error)) from None
    return found, away


def query_servers(task_files: Sequence[str]) -> None:
    """Query the OpenEnv servers that task files name, before an event loop begins.

    An unavailable server is not queried again in this process: the swarm's manifest describes its
    family, and the task worker checks from time to time whether the server has it. Other errors in
    a task file are reported where its family is needed.
    """
    for path in task_files:
        try:
            load_task_file(Path(path))
        except ServerUnavailable as error:
            log.warning("%s: %s; its family is skipped until the server is available", path, error)
            mark_unavailable(error)
        except FamilyError:
            continue


def starting_families(preset: str, task_files: Sequence[str] = ()) -> tuple[TaskFamily, ...]:
    """Return the families of a swarm that starts here: a preset's, then the user's own.

    ``none`` is the preset without families.

    Raises:
        ManifestError: a task file cannot be used, two families have one name, or there is none.
    """
    try:
        own = load_task_files(task_files)
    except FamilyError as error:
        raise ManifestError(str(error)) from None
    families = (*PRESETS.get(preset, ()), *own)
    if not families:
        raise ManifestError("a swarm needs tasks: --tasks PRESET, FILE.toml or PRESET,FILE.toml")
    names = [spec.name for spec in families]
    for name in names:
        if names.count(name) > 1:
            raise ManifestError(f"two of the swarm's tasks are named {name!r}: rename one")
    return families_of(families)


def specs_of(manifest: Manifest, task_files: Sequence[str] = ()) -> tuple[FamilySpec, ...]:
    """Return the families that this installation can generate and score in a manifest's swarm:
    those of the manifest, then those that `task_files` add to it (`added_specs`).

    A family of the manifest is skipped if this version lacks its generator or verifier, if none of
    `task_files` has its rows, or if its verifier is not installed. Its groups are then ignored,
    like those of an unknown family. A family on an unavailable server is included: its worker
    detects when the server is available, and whether it has this family.

    Raises:
        ManifestError: a family is invalid, none is left except those on unavailable servers, or a
            task file cannot be used.
    """
    found, away = _here_and_away(task_files)
    here = {spec.digest: spec for spec in found.values()}
    names_here = {spec.name: spec for spec in found.values()}
    usable = []
    missing: list[str] = []
    edited: list[str] = []
    num_away = 0
    for family in manifest.families:
        try:
            spec = spec_of(family)
        except NewerFamilyError as error:
            missing.append(f"a version of shoal that knows it ({error})")
            continue
        except FamilyError as error:
            raise ManifestError(f"swarm {manifest.swarm_name!r}: {error}") from None
        is_brought = spec.is_of_a_file or spec.is_on_a_server
        own = names_here.get(spec.name)
        if is_brought and spec.digest not in here and own is not None:
            edited += differences_here(family, own)
        elif spec.is_on_a_server and spec.digest not in here:
            where = "(--tasks)"
            if spec.name in away:
                where = f"at {away[spec.name]}, which does not answer"
                usable.append(replace(spec, path=away[spec.name]))
                num_away += 1
            missing.append(f"the OpenEnv server of {spec.name!r} {where}")
        elif spec.is_of_a_file and spec.digest not in here:
            also = " and a judge for it" if spec.is_local else ""
            missing.append(f"the file of {spec.name!r}{also} (--tasks)")
        elif spec.verifier != VERIFIER and (
            installed_version(spec.verifier) != spec.verifier_version
        ):
            missing.append(
                f"{spec.verifier} {spec.verifier_version} for {spec.name!r}{how_to_install(spec)}"
            )
        elif not is_brought:
            usable.append(spec)
        else:
            usable.append(_placed(spec, here[spec.digest]))
    added = added_specs(manifest, found)
    if len(usable) == num_away and not added:
        raise ManifestError(_none_usable(manifest, missing, edited))
    return (*usable, *added)


def added_specs(manifest: Manifest, found: Mapping[str, FamilySpec]) -> tuple[FamilySpec, ...]:
    """Return the families that a node adds to those of a swarm, by task file.

    Only a family of a file has a topic of its own, so that it costs no other node anything. A task
    that was accepted from a peer belongs to the swarm of that peer.
    """
    # A digest covers no name, and a family is known by either.
    known = {family.name for family in manifest.families} | _digests(manifest)
    added = []
    for path, spec in found.items():
        accepted_in = accepted_swarm(Path(path)) if Path(path).name == ACCEPTED_FILE else None
        if {spec.name, spec.digest} & known or not spec.is_of_a_file:
            continue
        if accepted_in in (None, manifest.digest.hex()):
            known |= {spec.name, spec.digest}
            added.append(spec)
    return tuple(added)


def _digests(manifest: Manifest) -> set[str | Digest]:
    return {digest_of(family.generator, family.config_json) for family in manifest.families}


def with_added(manifest: Manifest, specs: Sequence[FamilySpec]) -> Manifest:
    """Return a manifest with the families of a node that it lacks. Its digest stays."""
    names = {family.name for family in manifest.families}
    return manifest.with_families(families_of(one for one in specs if one.name not in names))


def _placed(spec: FamilySpec, here: FamilySpec) -> FamilySpec:
    """Return a swarm's family with what this machine alone knows of the same one."""
    names = [one.name for one in fields(here) if one.init and not one.compare]
    return replace(spec, **{name: getattr(here, name) for name in names})


def _none_usable(manifest: Manifest, missing: Sequence[str], edited: Sequence[str]) -> str:
    """Return why no family of a swarm can be used here, beginning with files that differ."""
    needs = f"swarm {manifest.swarm_name!r} needs {', '.join(missing)}"
    if not edited:
        return needs
    also = f", and {needs}" if missing else ""
    return (
        f"{shown(edited)}{also}; restore what changed, or start a swarm of another name "
        "(--swarm-name)"
    )


def differences_here(family: TaskFamily, own: FamilySpec) -> list[str]:
    """Return how a local file's family differs from the swarm's family of the same name."""
    (stated,) = families_of([own])
    return family_differences(family, stated, frozenset(), SWARM)


def unused_task_files(manifest: Manifest, task_files: Sequence[str]) -> tuple[str, ...]:
    """Return, for each of the user's task files that is not trained on in the swarm, the reason.

    Raises:
        ManifestError: a task file cannot be used.
    """
    found = _here_and_away(task_files)[0]
    added = {spec.digest for spec in added_specs(manifest, found)}
    stated = {family.name: family for family in manifest.families}
    return tuple(
        shown(differences_here(stated[own.name], own))
        if own.name in stated
        else f"the swarm has no family {own.name}, and only one of a file can be added to it"
        for own in found.values()
        if own.digest not in _digests(manifest) | added
    )


@functools.cache
def installed_version(verifier: str) -> str | None:
    """Return a verifier's version on this machine, without importing it; None if it is absent.

    Cached: the worker asks once while the disk is readable, and again afterwards.
    """
    package = _PACKAGES.get(verifier)
    if package is None:
        return VERIFIER_VERSIONS.get(verifier)
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


_PACKAGES: Final = {
    VERIFIER: "reasoning-gym",
    MATH_VERIFY: "math-verify",
    TEXT_ARENA: "textarena",
}
_EXTRAS: Final = {MATH_VERIFY: "math", TEXT_ARENA: "games"}


def how_to_install(spec: FamilySpec) -> str:
    """Return the command that installs a family's verifier."""
    extra = _EXTRAS.get(spec.verifier)
    return f": {how_to_get(extra)}" if extra else ""


def families_without_files(
    manifest: Manifest, task_files: Sequence[str]
) -> tuple[tuple[TaskFamily, FamilySpec], ...]:
    """Return the families whose files no task file here has, and that peers may have.

    Raises:
        ManifestError: a task file that cannot be used.
    """
    here = families_here(task_files)
    known = {spec.digest for spec in here} | {spec.name for spec in here}
    found = []
    for family in manifest.families:
        try:
            spec = spec_of(family)
        except FamilyError:
            continue  # `specs_of` says what is wrong with it
        if can_travel(spec) and not {spec.digest, spec.name} & known:
            found.append((family, spec))
    return tuple(found)


def families_without_servers(
    manifest: Manifest, task_files: Sequence[str]
) -> tuple[FamilySpec, ...]:
    """Return the families on an OpenEnv server that no task file here names.

    Raises:
        ManifestError: a task file that cannot be used.
    """
    here, away = _here_and_away(task_files)
    named = {spec.name for spec in here.values()} | set(away)
    found = []
    for family in manifest.families:
        try:
            spec = spec_of(family)
        except FamilyError:
            continue
        if spec.is_on_a_server and spec.name not in named:
            found.append(spec)
    return tuple(found)


def families_of(specs: Iterable[FamilySpec]) -> tuple[TaskFamily, ...]:
    """Convert specs to families of a manifest."""
    return tuple(
        TaskFamily(
            **_shared(spec), config_json=spec.canonical, answer_format=spec.answer_format.value
        )
        for spec in specs
    )


def rules_of(manifest: Manifest) -> BatchRules:
    """Return the manifest's rules, with the digests by which batches name its families."""
    return BatchRules(
        manifest=manifest,
        config_digests={
            family.name: digest_of(family.generator, family.config_json)
            for family in manifest.families
        },
    )


def spec_of(family: TaskFamily) -> FamilySpec:
    """Return the spec of a family, without local paths. Raises `FamilyError`."""
    return FamilySpec(
        **_shared(family),
        config=json.loads(family.config_json),
        answer_format=AnswerFormat(family.answer_format),
    )


def _shared(one: TaskFamily | FamilySpec) -> dict[str, Any]:
    """Return the fields that a spec and a manifest's family have in common."""
    names = ("name", "generator", "weight", "verifier", "verifier_version")
    return {name: getattr(one, name) for name in names}
