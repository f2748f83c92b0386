// Judges one case per line: {spec, root, proof, key, value} in hex, value null for absence. Answers false, or true and
// the proof as the package writes it after it has read it: one for each alternative, as it may have read several. Whatever the package raises is a refusal. It has no
// specification of sparse trees with hashed keys, so that one is written down here.
"use strict";
const { ics23, iavlSpec, tendermintSpec, verifyMembership, verifyNonMembership } = require("@confio/ics23");

const smtSpec = {
  leafSpec: {
    hash: ics23.HashOp.SHA256,
    prehashKey: ics23.HashOp.SHA256,
    prehashValue: ics23.HashOp.SHA256,
    length: ics23.LengthOp.NO_PREFIX,
    prefix: Uint8Array.from([0]),
  },
  innerSpec: {
    childOrder: [0, 1],
    childSize: 32,
    minPrefixLength: 1,
    maxPrefixLength: 1,
    emptyChild: new Uint8Array(32),
    hash: ics23.HashOp.SHA256,
  },
  maxDepth: 256,
};
const specs = { iavl: iavlSpec, tendermint: tendermintSpec, smt: smtSpec };
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

function entriesOf(batch) {
  const one = (entry, name) => (entry[name] ? [{ [name]: entry[name] }] : []);
  return { ...batch, entries: batch.entries.flatMap((entry) => [...one(entry, "exist"), ...one(entry, "nonexist")]) };
}

function written(decoded) {
  const { exist, nonexist, batch, compressed } = decoded;
  return [
    exist && { exist },
    nonexist && { nonexist },
    batch && { batch: entriesOf(batch) },
    compressed && { compressed: entriesOf(compressed) },
  ]
    .filter((each) => each)
    .map((each) => Buffer.from(ics23.CommitmentProof.encode(each).finish()).toString("hex"));
}

function verdict({ spec, root, proof, key, value }) {
  try {
    const decoded = ics23.CommitmentProof.decode(bytes(proof));
    const holds =
      value === null
        ? verifyNonMembership(decoded, specs[spec], bytes(root), bytes(key))
        : verifyMembership(decoded, specs[spec], bytes(root), bytes(key), bytes(value));
    return holds ? ["true", ...written(decoded)].join(" ") : "false";
  } catch (refused) {
    return "false";
  }
}

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => process.stdout.write(`${verdict(JSON.parse(line))}\n`));
