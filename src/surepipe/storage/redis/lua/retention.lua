-- needs: common
-- Gives a stream another retention, in all its partitions. Removes nothing: the next append does what it demands.
--   KEYS[1]     sp:{tag}:layout         string  layout version                         owner: whoever wrote first
--   KEYS[2 + n] sp:{tag}:h:<partition>  hash    head: max_bytes, max_age_us and force  owner: create.lua, appends
-- ARGV: version, number of partitions as the caller saw it, max_bytes, max_age_us, force.
-- Replies: changed; missing; again (there are other partitions now).

local refusal = other_layout()
if refusal then
  return refusal
end
local partitions = redis.call("HGET", KEYS[2], "partitions")
if not partitions then
  return {"missing"}
end
if partitions ~= ARGV[2] then
  return {"again"}
end
for key = 2, #KEYS do
  if redis.call("HEXISTS", KEYS[key], "incarnation") == 1 then
    redis.call("HSET", KEYS[key], "max_bytes", ARGV[3], "max_age_us", ARGV[4], "force", ARGV[5])
  end
end
return {"changed"}
