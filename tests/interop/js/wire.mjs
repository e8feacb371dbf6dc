// The contract between shoal peers, from docs/wire.md and the .proto files alone: envelopes,
// batches, the manifest, topics. No network here.
import { createHash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import path from 'node:path'

import { publicKeyFromProtobuf, publicKeyToProtobuf } from '@libp2p/crypto/keys'
import { peerIdFromPublicKey } from '@libp2p/peer-id'
import * as zstd from '@bokuweb/zstd-wasm'
import protobuf from 'protobufjs'

const PROTO_ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../../proto')
const DOMAIN = Buffer.from('shoal-rollouts-v1')
const PAYLOAD_TYPE = Buffer.from('/shoal/rollout-batch/1')
const ED25519_PREFIX = Buffer.from([0x08, 0x01, 0x12, 0x20])
const ZSTD_MAGIC = 0xfd2fb528

export class Refused extends Error {
  /** `reason` is a row of the verdict table in docs/wire.md. */
  constructor (reason) { super(reason); this.reason = reason }
}

await zstd.init()
const root = new protobuf.Root()
root.resolvePath = (_origin, target) => path.join(PROTO_ROOT, target)
await root.load(['shoal_wire/v1/rollout.proto', 'shoal_wire/v1/swarm.proto'])
const Envelope = root.lookupType('shoal.v1.Envelope')
const RolloutBatch = root.lookupType('shoal.v1.RolloutBatch')
const SwarmManifest = root.lookupType('shoal.v1.SwarmManifest')
const PeerList = root.lookupType('shoal.v1.PeerList')

export const sha256 = (bytes) => createHash('sha256').update(bytes).digest()
export const batchId = (envelope) => sha256(envelope).toString('hex')

/** What the signature covers: domain, payload type and payload, each behind its length. */
function signedBytes (payloadType, payload) {
  return Buffer.concat([DOMAIN, payloadType, payload].flatMap((part) => [varint(part.length), part]))
}

function varint (value) {
  const bytes = []
  for (; value >= 0x80; value = Math.floor(value / 128)) bytes.push((value % 128) | 0x80)
  return Buffer.from([...bytes, value])
}

/** The one encoding of an envelope: fields in ascending order, once, none empty. */
function encodeEnvelope ({ publicKey, payloadType, payload, signature }) {
  const fields = [[1, publicKey], [2, payloadType], [3, payload], [5, signature]]
  return Buffer.concat(fields.filter(([, value]) => value.length > 0).flatMap(([number, value]) =>
    [Buffer.from([number << 3 | 2]), varint(value.length), value]))
}

const FIELD = 2n ** 255n - 19n
const OF_ORDER_8 = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n
const SMALL_ORDER = [0n, 1n, FIELD - 1n, OF_ORDER_8, FIELD - OF_ORDER_8]

/** Whether anybody can sign for this key: of small order, or not the shortest encoding. */
function isWeak (key) {
  const y = BigInt('0x' + Buffer.from(key).reverse().toString('hex')) & (2n ** 255n - 1n)
  return y >= FIELD || SMALL_ORDER.includes(y)
}

/** Verify an envelope over its exact bytes; return the signer's peer id and the payload. */
export async function openEnvelope (bytes) {
  const message = decode(Envelope, bytes, 'malformed_envelope')
  if (!encodeEnvelope(message).equals(bytes)) throw new Refused('not_canonical')
  if (!PAYLOAD_TYPE.equals(message.payloadType)) throw new Refused('wrong_payload_type')
  const key = Buffer.from(message.publicKey)
  if (key.length !== 36 || !key.subarray(0, 4).equals(ED25519_PREFIX)) {
    throw new Refused('key_not_ed25519')
  }
  if (isWeak(key.subarray(4))) throw new Refused('weak_key')
  const publicKey = publicKeyFromProtobuf(key)
  const holds = await publicKey.verify(signedBytes(PAYLOAD_TYPE, message.payload), message.signature)
  if (!holds) throw new Refused('bad_signature')
  return { signer: peerIdFromPublicKey(publicKey).toString(), payload: message.payload }
}

/** Sign a payload with a libp2p private key; return the envelope's bytes. */
export async function seal (payload, privateKey) {
  const signature = await privateKey.sign(signedBytes(PAYLOAD_TYPE, payload))
  const publicKey = publicKeyToProtobuf(privateKey.publicKey)
  return encodeEnvelope({ publicKey, payloadType: PAYLOAD_TYPE, payload, signature })
}

/** Decode a compressed batch of at most `maxBytes` once decompressed. */
export function decodeBatch (payload, maxBytes) {
  const size = declaredSize(payload)
  if (size > maxBytes) throw new Refused('oversize_payload')
  let content
  try {
    content = zstd.decompress(payload)
  } catch {
    throw new Refused('corrupt_compression')
  }
  if (content.length !== size) throw new Refused('corrupt_compression')
  return decode(RolloutBatch, content, 'malformed_payload')
}

/** Encode and compress a batch; the frame declares its content size. */
export function encodeBatch (batch) {
  return zstd.compress(Buffer.from(RolloutBatch.encode(batch).finish()), 12)
}

/** The content size that a zstd frame declares (RFC 8878, 3.1.1.1), read before any allocation. */
function declaredSize (frame) {
  const bytes = Buffer.from(frame)
  if (bytes.length < 6 || bytes.readUInt32LE(0) !== ZSTD_MAGIC) throw new Refused('corrupt_compression')
  const descriptor = bytes[4]
  const single = (descriptor >> 5) & 1
  const width = [single, 2, 4, 8][descriptor >> 6]
  const at = 5 + (single ? 0 : 1) + [0, 1, 2, 4][descriptor & 3]
  if (width === 0 || bytes.length < at + width) throw new Refused('corrupt_compression')
  if (width === 8) return Number(bytes.readBigUInt64LE(at))
  return bytes.readUIntLE(at, width) + (width === 2 ? 256 : 0)
}

/** Decode a manifest; its digest names the swarm. */
export function openManifest (bytes) {
  const manifest = decode(SwarmManifest, bytes, 'malformed_manifest')
  const digest = sha256(bytes)
  const topic = (shard) => `/shoal/1/${digest.toString('hex')}/rollouts/${shard}`
  return {
    ...SwarmManifest.toObject(manifest, { defaults: true }),
    digest,
    topics: Array.from({ length: manifest.shardCount }, (_, shard) => topic(shard)),
    topicOf: (peerId) => topic(Number(sha256(Buffer.from(peerId)).readBigUInt64BE(0) % BigInt(manifest.shardCount)))
  }
}

/** Addresses in an answer to `/shoal/peers/1`. */
export function decodePeers (bytes) {
  return decode(PeerList, bytes, 'malformed_peers').peers.flatMap((peer) => peer.addresses)
}

function decode (type, bytes, reason) {
  try {
    return type.decode(bytes)
  } catch {
    throw new Refused(reason)
  }
}
