// Judges one case per line: {spec, root, proof, key, value} in hex, value null for absence. Answers true or false.
// Whatever the package raises is a refusal. It has no specification of sparse trees with hashed keys, so that
// one is written down here.
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

function verdict({ spec, root, proof, key, value }) {
  try {
    const decoded = ics23.CommitmentProof.decode(bytes(proof));
    return value === null
      ? verifyNonMembership(decoded, specs[spec], bytes(root), bytes(key))
      : verifyMembership(decoded, specs[spec], bytes(root), bytes(key), bytes(value));
  } catch (refused) {
    return false;
  }
}

require("readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => process.stdout.write(`${verdict(JSON.parse(line))}\n`));
