-- needs: common
-- The whole head and all producers, at one moment; writes nothing.
--   KEYS[1]  sp:{tag}:layout     string  layout version         owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head, read only        owner: create.lua, appends
--   KEYS[3]  sp:{tag}:p:<stream> hash    producers, read only   owner: open.lua, appends
-- ARGV: version. Replies: info, fields and values of the head, of the producers; missing.

local refusal = other_layout()
if refusal then
  return refusal
end
if redis.call("HEXISTS", KEYS[2], "incarnation") == 0 then
  return {"missing"}
end
return {"info", redis.call("HGETALL", KEYS[2]), redis.call("HGETALL", KEYS[3])}
