-- needs: common
-- The stored position of a reader; writes nothing.
--   KEYS[1]  sp:{tag}:layout  string  layout version        owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i       hash    positions, read only  owner: claim.lua, commits
-- ARGV: version, field. Replies: position value; none.

local refusal = other_layout()
if refusal then
  return refusal
end
local found = redis.call("HGET", KEYS[2], ARGV[2])
if not found then
  return {"none"}
end
return {"position", found}
