-- needs: common
-- Pages from an index on; writes nothing.
--   KEYS[1]  sp:{tag}:layout     string  layout version    owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head, read only   owner: create.lua, appends
--   KEYS[3]  sp:{tag}:s:<stream> stream  pages, read only  owner: appends
-- ARGV: version, index, most messages, most bytes, incarnation or "", and producer, epoch, seq of the entry before the
-- index, if the reader knows it.
-- Replies: batch next, pages; empty next; trimmed earliest; ahead next; reset incarnation; diverged producer, epoch, seq;
-- missing.
-- Where somebody else has removed pages, a batch ends before them, and from there on they count as trimmed.
-- The last page may go beyond both bounds, and the first may begin below the index: the reader cuts them.

local refusal = other_layout()
if refusal then
  return refusal
end
local head = redis.call("HMGET", KEYS[2], "incarnation", "next", "earliest")
if not head[1] then
  return {"missing"}
end
if ARGV[5] ~= "" and ARGV[5] ~= head[1] then
  return {"reset", head[1]}
end
local index, next = tonumber(ARGV[2]), tonumber(head[2])
if index < tonumber(head[3]) then
  return {"trimmed", head[3]}
end
if index > next then
  return {"ahead", head[2]}
end
-- Entry ids are <index>-0; fields are p, e, f, n, t, c, b in this order (streams.lua).
local function start_of(page)
  return tonumber(string.match(page[1], "^%d+"))
end
local function stop_of(page)
  return start_of(page) + tonumber(page[2][8])
end
local function page_with(at)
  return redis.call("XREVRANGE", KEYS[3], text(at) .. "-0", "-", "COUNT", 1)
end
local pages = index < next and page_with(index) or {}
if ARGV[6] then
  -- Most pages begin where a read ends, so the one before is mostly another.
  local before = pages[1] and start_of(pages[1]) < index and pages[1] or page_with(index - 1)[1]
  if before and stop_of(before) >= index then
    local field, seq = before[2], text(tonumber(before[2][6]) + index - 1 - start_of(before))
    if field[2] ~= ARGV[6] or field[4] ~= ARGV[7] or seq ~= ARGV[8] then
      return {"diverged", field[2], field[4], seq}
    end
  end
end
if index == next then
  return {"empty", head[2]}
end
if not pages[1] or stop_of(pages[1]) <= index then
  local following = redis.call("XRANGE", KEYS[3], ARGV[2] .. "-0", "+", "COUNT", 1)[1]
  return {"trimmed", following and text(start_of(following)) or head[2]}
end
-- Payload bytes of a page: its body without the lengths, whose width is the first byte (redis_pages.py).
local function size_of(page)
  local body, width = page[2][14], string.byte(page[2][14], 1)
  return #body - 1 - (width == 0 and 4 or width * tonumber(page[2][8]))
end
local stop = index + tonumber(ARGV[3])
-- Of the first page, what is below the index is not counted against the bound: its length is not known here.
local bytes = tonumber(ARGV[4]) - (stop_of(pages[1]) - index == tonumber(pages[1][2][8]) and size_of(pages[1]) or 0)
local whole = true
while whole and bytes >= 0 and stop_of(pages[#pages]) < math.min(stop, next) do
  local more = redis.call("XRANGE", KEYS[3], "(" .. pages[#pages][1], "+", "COUNT", 4)
  whole = #more > 0
  for _, page in ipairs(more) do
    whole = whole and start_of(page) == stop_of(pages[#pages])
    if whole and bytes >= 0 and stop_of(pages[#pages]) < stop then
      pages[#pages + 1] = page
      bytes = bytes - size_of(page)
    end
  end
end
return {"batch", head[2], pages}
