-- needs: common
-- Who wrote the entry at an index; writes nothing.
--   KEYS[1]  sp:{tag}:layout     string  layout version    owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head, read only   owner: create.lua, appends
--   KEYS[3]  sp:{tag}:s:<stream> stream  pages, read only  owner: appends
-- ARGV: version, index. Replies: identity producer, epoch, seq; trimmed earliest; absent; missing.

local refusal = other_layout()
if refusal then
  return refusal
end
local head = redis.call("HMGET", KEYS[2], "incarnation", "next", "earliest")
if not head[1] then
  return {"missing"}
end
local index = tonumber(ARGV[2])
if index < 1 or index >= tonumber(head[2]) then
  return {"absent"}
end
if index < tonumber(head[3]) then
  return {"trimmed", head[3]}
end
local page = redis.call("XREVRANGE", KEYS[3], ARGV[2] .. "-0", "-", "COUNT", 1)[1]
local field, start = page and page[2], page and tonumber(string.match(page[1], "^%d+"))
if not page or start + tonumber(field[8]) <= index then
  return {"trimmed", text(index + 1)}  -- somebody else has removed it
end
return {"identity", field[2], field[4], tonumber(field[6]) + index - start}
