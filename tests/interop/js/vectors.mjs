// Checks the contract's known answers (tests/vectors) with this implementation; prints one JSON
// object and exits with 1 if any differs.
import './polyfills.mjs'
import { readFile } from 'node:fs/promises'

const { batchId, decodeBatch, openEnvelope, openManifest } = await import('./wire.mjs')
const hex = (text) => Buffer.from(text, 'hex')
const read = async (name) => JSON.parse(await readFile(new URL(`../../vectors/${name}`, import.meta.url)))
const differences = []
let checked = 0

function check (what, found, wanted) {
  checked += 1
  if (String(found) !== String(wanted)) differences.push({ what, found: String(found), wanted: String(wanted) })
}

const envelopes = await read('wire_envelope.json')
for (const known of envelopes.valid) {
  const { signer, payload } = await openEnvelope(hex(known.envelope))
  const batch = decodeBatch(payload, 1 << 21)
  check(`${known.name}: signer`, signer, known.peer_id)
  check(`${known.name}: batch id`, batchId(hex(known.envelope)), known.batch_id)
  check(`${known.name}: sequence`, batch.sequence, known.batch.sequence)
  check(`${known.name}: families`, batch.groups.map((g) => g.task.family), known.batch.groups.map((g) => g.task.family))
  check(`${known.name}: texts`,
    JSON.stringify(batch.groups.map((g) => g.completions.map((c) => c.text))),
    JSON.stringify(known.batch.groups.map((g) => g.completions.map((c) => c.text))))
}
for (const known of envelopes.rejected) {
  const reason = await openEnvelope(hex(known.envelope)).then(() => 'accepted', (error) => error.reason)
  check(known.name, reason, known.reason)
}
const known = await read('wire_manifest.json')
const manifest = openManifest(hex(known.manifest))
check('swarm digest', manifest.digest.toString('hex'), known.digest)
check('topics', manifest.topics, known.topics)
for (const [peerId, shard] of Object.entries(known.shards)) {
  check(`shard of ${peerId}`, manifest.topicOf(peerId), known.topics[shard])
}
console.log(JSON.stringify({ checked, differences }))
process.exit(differences.length === 0 ? 0 : 1)
