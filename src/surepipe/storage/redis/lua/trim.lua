-- needs: streams
-- Forgets whole pages below an index, as far as the readers allow.
--   KEYS[1]  sp:{tag}:layout     string  layout version                  owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head: earliest and cut move     owner: create.lua, appends
--   KEYS[3]  sp:{tag}:s:<stream> stream  pages: the oldest go            owner: appends
--   KEYS[4]  sp:{tag}:p:<stream> hash    producers, read only: they stay owner: open.lua, appends
-- ARGV: version, before. Replies: trimmed earliest, the readers that were passed; held reader, its next index; missing.

local refusal = other_layout()
if refusal then
  return refusal
end
local stream = load_stream(KEYS[2], KEYS[3], KEYS[4])
if not stream then
  return {"missing"}
end
local before = math.min(tonumber(ARGV[2]), stream.next)
local limit, passed, slowest = before, {}, nil
for _, reader in ipairs(registered(stream)) do
  if reader.next < before then
    passed[#passed + 1] = reader.name
    if not slowest or reader.next < slowest.next then
      slowest = reader
    end
  end
  limit = math.min(limit, reader.next - 1)  -- the entry before a position stays: its anchor
end
if stream.force then
  limit = before
elseif slowest then
  return {"held", slowest.name, slowest.next}
end
if limit > stream.earliest then
  local start = limit
  if limit < stream.next then
    local page = redis.call("XREVRANGE", stream.s, text(limit) .. "-0", "-", "COUNT", 1)[1]
    start = page and tonumber(string.match(page[1], "^%d+")) or limit
  end
  if start > stream.earliest then
    cut_before(stream, start, page_at(stream, start))
    write_stream(stream)
  end
end
return {"trimmed", stream.earliest, stream.force and passed or {}}
