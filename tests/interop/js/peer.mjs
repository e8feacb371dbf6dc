// A foreign shoal node: joins from one bootstrap address, verifies and counts what it hears, and
// shares batches of its own. One JSON object a line on standard output.
//
//   node peer.mjs BOOTSTRAP [--answer N] [--forge] [--seconds S]
//
// It has no task generator, and a batch names its tasks by coordinates: it can neither ask new
// questions nor read those it hears. So it answers a heard question with the others' answers in
// reverse and one of its own: a new group, which its receivers regenerate, verify and train on.
import './polyfills.mjs'
import { parseArgs } from 'node:util'

import { generateKeyPair } from '@libp2p/crypto/keys'
import { gossipsub } from '@libp2p/gossipsub'
import { identify } from '@libp2p/identify'
import { noise } from '@libp2p/noise'
import { tcp } from '@libp2p/tcp'
import { lpStream } from '@libp2p/utils'
import { yamux } from '@libp2p/yamux'
import { multiaddr } from '@multiformats/multiaddr'
import { createLibp2p } from 'libp2p'
import { concat } from 'uint8arrays/concat'

import { batchId, decodeBatch, decodePeers, encodeBatch, openEnvelope, openManifest, seal } from './wire.mjs'

const { values: flags, positionals: [bootstrap] } = parseArgs({
  allowPositionals: true,
  options: {
    answer: { type: 'string', default: '0' },
    forge: { type: 'boolean', default: false },
    seconds: { type: 'string', default: '60' }
  }
})
if (bootstrap === undefined) {
  console.error('usage: node peer.mjs BOOTSTRAP [--answer N] [--forge] [--seconds S]')
  process.exit(2)
}
const say = (event, facts = {}) => console.log(JSON.stringify({ event, ...facts }))

const privateKey = await generateKeyPair('Ed25519')
const node = await createLibp2p({
  privateKey,
  addresses: { listen: ['/ip4/127.0.0.1/tcp/0'] },
  transports: [tcp()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    pubsub: gossipsub({
      // py-libp2p and go-libp2p name a message by its author's bytes and its number; without the
      // same name offers and requests for a message would never match.
      msgIdFn: (message) => concat([message.from.toMultihash().bytes, numberBytes(message.sequenceNumber)])
    })
  }
})
const me = node.peerId.toString()
say('started', { peerId: me })

const frames = {
  lengthEncoder: (length) => { const bytes = Buffer.alloc(4); bytes.writeUInt32BE(length); return bytes },
  lengthDecoder: (bytes) => bytes.getUint32(0),
  maxLengthLength: 4,
  maxDataLength: 256 * 1024
}
frames.lengthDecoder.bytes = 4
frames.lengthEncoder.bytes = 4

const manifest = openManifest(await ask(bootstrap, '/shoal/manifest/1'))
say('manifest', { swarm: manifest.swarmName, digest: manifest.digest.toString('hex') })
for (const address of decodePeers(await ask(bootstrap, '/shoal/peers/1'))) {
  if (!address.endsWith(me)) await node.dial(multiaddr(address)).catch((error) => say('not-dialled', { address, error: String(error) }))
}

let sequence = Date.now()
let answersLeft = Number(flags.answer)
let toForge = flags.forge
node.services.pubsub.addEventListener('message', ({ detail: message }) => {
  hear(message).catch((error) => say('refused', { reason: error.reason ?? String(error) }))
})
for (const topic of manifest.topics) node.services.pubsub.subscribe(topic)
setTimeout(async () => { await node.stop(); process.exit(0) }, Number(flags.seconds) * 1000).unref()
process.stdin.on('end', async () => { await node.stop(); process.exit(0) }).resume()

async function hear (message) {
  const envelope = message.data
  const { signer, payload } = await openEnvelope(envelope)
  if (signer !== message.from.toString()) throw new Error('signer_not_sender')
  const batch = decodeBatch(payload, manifest.maxBatchBytes)
  const texts = batch.groups.map((group) => group.completions.map((completion) => completion.text))
  say('heard', { signer, batchId: batchId(envelope), sequence: Number(batch.sequence), texts })
  if (answersLeft > 0) {
    answersLeft -= 1
    await publish('answered', ownBatch(batch))
  } else if (toForge) {
    toForge = false
    await publish('forged', forgedBatch(batch))
  }
}

/** Answer the questions of a batch that was heard. */
function ownBatch (heard) {
  return {
    schemaMajor: 1,
    swarmDigest: manifest.digest,
    sequence: ++sequence,
    round: 1,
    createdMs: Date.now(),
    policy: { modelName: 'js-example' },
    sampling: { temperature: 1, topP: 1, maxNewTokens: 8 },
    groups: heard.groups.map((group) => ({ task: group.task, completions: ownCompletions(group) }))
  }
}

function ownCompletions (group) {
  const others = group.completions.map((completion) => ({ ...completion, logprobs: new Uint8Array() }))
  const own = { text: `js ${sequence}`, numTokens: 4, finishReason: 1 }
  return [own, ...others.reverse()].slice(0, manifest.maxCompletions)
}

/** The same batch with another question's digest: no receiver can regenerate it. */
function forgedBatch (heard) {
  const batch = ownBatch(heard)
  for (const group of batch.groups) {
    group.task = { ...group.task, questionDigest: Buffer.alloc(16, 7) }
  }
  return batch
}

async function publish (event, batch) {
  const envelope = await seal(encodeBatch(batch), privateKey)
  const { recipients } = await node.services.pubsub.publish(manifest.topicOf(me), envelope)
  say(event, { batchId: batchId(envelope), sequence: batch.sequence, recipients: recipients.length })
}

/** One request: an empty frame out, one frame back. */
async function ask (address, protocol) {
  const signal = AbortSignal.timeout(10_000)
  const stream = await node.dialProtocol(multiaddr(address), protocol, { signal })
  const framed = lpStream(stream, frames)
  await framed.write(new Uint8Array(), { signal })
  const answer = (await framed.read({ signal })).subarray()
  await stream.close({ signal })
  return answer
}

function numberBytes (number) {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(number)
  return bytes
}
