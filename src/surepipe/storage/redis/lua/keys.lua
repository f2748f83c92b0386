-- needs: common
-- Values of some keys of a table, at one moment; writes nothing.
--   KEYS[1]  sp:{tag}:layout     string  layout version                owner: whoever wrote first
--   KEYS[2]  sp:{tag}:k:<table>  hash    keys to values, read only     owner: transaction.lua
-- ARGV: version, then the keys. Replies: values, one each, nil where there is none.

local refusal = other_layout()
if refusal then
  return refusal
end
local found = {}
for at = 2, #ARGV, 1000 do
  local upto = math.min(at + 999, #ARGV)
  local values = redis.call("HMGET", KEYS[2], unpack(ARGV, at, upto))
  for n = 1, upto - at + 1 do
    found[#found + 1] = values[n]
  end
end
return {"values", found}
