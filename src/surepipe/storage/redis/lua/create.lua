-- needs: common
-- Makes a stream with all its partitions, or tells how it was made.
--   KEYS[1]  sp:{tag}:layout                string  layout version                      owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i                     hash    positions; those that are older than the stream are registered
--   KEYS[3]  sp:{tag}:h:<stream>            hash    the stream, were it of one partition
--   KEYS[4]  sp:{tag}:h:<stream>#0          hash    the stream, were it of several
--   KEYS[5 + 3n], [6 + 3n], [7 + 3n]  sp:{tag}:h|s|p:<partition>  hash, stream, hash: head, pages, producers
--                                                                                       owner: this script makes them
-- ARGV: version, incarnation, partitions, max_bytes, max_age_us, force, then the field prefix of each partition in i.
-- Replies: created incarnation; exists incarnation, partitions, max_bytes, max_age_us, force; damaged key.

local refusal = other_layout()
if refusal then
  return refusal
end
for key = 3, 4 do
  local known = redis.call("HMGET", KEYS[key], "incarnation", "partitions", "max_bytes", "max_age_us", "force")
  if known[1] then
    return {"exists", known[1], known[2], known[3], known[4], known[5]}
  end
end
for key = 5, #KEYS, 3 do
  -- Pages or producers without a head: somebody removed half of a stream. Never build on that.
  if redis.call("XLEN", KEYS[key + 1]) > 0 then
    return {"damaged", KEYS[key + 1]}
  end
  if redis.call("HLEN", KEYS[key + 2]) > 0 then
    return {"damaged", KEYS[key + 2]}
  end
end
settle_layout()
local fields = redis.call("HKEYS", KEYS[2])
for key = 5, #KEYS, 3 do
  redis.call("HSET", KEYS[key], "incarnation", ARGV[2], "partitions", ARGV[3], "max_bytes", ARGV[4], "max_age_us", ARGV[5],
    "force", ARGV[6], "next", "1", "earliest", "1", "total", "0", "cut", "0")
  local prefix = ARGV[7 + (key - 5) / 3]
  for _, field in ipairs(fields) do
    if string.sub(field, 1, #prefix) == prefix then
      local tag, next = string.match(redis.call("HGET", KEYS[2], field), "^%d+ %S+ (%S+) (%d+) ")
      if tag ~= "-" then
        redis.call("HSET", KEYS[key], "r:" .. string.sub(field, #prefix + 1), next)
      end
    end
  end
end
return {"created", ARGV[2]}
