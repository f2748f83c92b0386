-- needs: positions
-- Moves the position of a reader, by its owner, forwards.
--   KEYS[1]  sp:{tag}:layout     string  layout version                         owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i          hash    positions: this reader's               owner: claim.lua, commits
--   KEYS[3]  sp:{tag}:h:<stream> hash    the stream's r:<reader>, if it exists  owner: create.lua, commits
-- ARGV: version, then the commit (take_commit). Replies: committed; kept position; fenced owner.

local refusal = other_layout()
if refusal then
  return refusal
end
local request = take_commit(2)
redis.call("HLEN", KEYS[3])  -- another type must fail before the first write
local reply, value = commit_position(find_position(KEYS[2], request.field), request)
if value then
  settle_layout()
  write_position(KEYS[2], KEYS[3], request.field, request.reader, value, request.next)
end
return reply
