-- needs: positions
-- Gives a reader to a claimant, unless a higher one had it.
--   KEYS[1]  sp:{tag}:layout  string  layout version               owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i       hash    positions: the reader's owner owner: this script, commits
-- ARGV: version, field, claimant. Replies: owner number; fenced claimant.

local refusal = other_layout()
if refusal then
  return refusal
end
local known = find_position(KEYS[2], ARGV[2])
if known.claimant == ARGV[3] then
  return {"owner", text(known.owner)}
end
if known.claimant ~= "-" and is_lower(ARGV[3], known.claimant) then
  return {"fenced", known.claimant}
end
local rest = known.raw and string.match(known.raw, "^%d+ %S+ (.*)$") or "- 0 0 0 - 0 0\n"
settle_layout()
redis.call("HSET", KEYS[2], ARGV[2], text(known.owner + 1) .. " " .. ARGV[3] .. " " .. rest)
return {"owner", text(known.owner + 1)}
