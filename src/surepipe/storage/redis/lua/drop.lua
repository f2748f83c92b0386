-- needs: streams
-- Removes a stream with all its partitions, its producers and its readers' positions.
--   KEYS[1]  sp:{tag}:layout  string  layout version                              owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i       hash    positions: those of the stream's readers go owner: claim.lua, commits
--   KEYS[3 + 3n], [4 + 3n], [5 + 3n]  sp:{tag}:h|s|p:<partition>  hash, stream, hash: head, pages, producers; all go
--                                                                                 owner: create.lua, appends
-- ARGV: version, epoch, number of partitions as the caller saw it, then the field prefix of each partition in i.
-- Replies: dropped; fenced epoch; absent; again (there are other partitions now).

local refusal = other_layout()
if refusal then
  return refusal
end
local partitions = redis.call("HGET", KEYS[3], "partitions")
if not partitions then
  return {"absent"}
end
if partitions ~= ARGV[3] then
  return {"again"}
end
for key = 5, #KEYS, 3 do
  for _, known in ipairs(redis.call("HVALS", KEYS[key])) do
    local epoch = string.match(known, "^%d+")
    if is_lower(ARGV[2], epoch) then
      return {"fenced", epoch}
    end
  end
end
local fields = redis.call("HKEYS", KEYS[2])
for key = 3, #KEYS do
  redis.call("DEL", KEYS[key])
end
for n = 4, #ARGV do
  for _, field in ipairs(fields) do
    if string.sub(field, 1, #ARGV[n]) == ARGV[n] then
      redis.call("HDEL", KEYS[2], field)
    end
  end
end
return {"dropped"}
