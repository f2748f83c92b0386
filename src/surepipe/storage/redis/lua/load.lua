-- needs: common
-- Some rows of a table, by cursor; writes nothing. A cursor is good for this run of this server only (each hashes in
-- its own way), so the caller begins anew behind a failover. A small table comes whole, whatever the limit.
--   KEYS[1]  sp:{tag}:layout     string  layout version                owner: whoever wrote first
--   KEYS[2]  sp:{tag}:k:<table>  hash    keys to values, read only     owner: transaction.lua
-- ARGV: version, cursor, limit. Replies: rows, the next cursor (0: the end), keys and values by turns.

local refusal = other_layout()
if refusal then
  return refusal
end
local found = redis.call("HSCAN", KEYS[2], ARGV[2], "COUNT", ARGV[3])
return {"rows", found[1], found[2]}
