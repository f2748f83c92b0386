-- needs: common
-- A stream as it will be: loaded from its keys, changed in Lua, and written at the end, so that a script that finds
-- a reason to refuse has written nothing. Touches
--   sp:{tag}:h:<stream>  hash    head of the stream                                    owner: create.lua, then appends
--       incarnation, partitions, retention parts (max_bytes, max_age_us, force), next (index of the next entry),
--       earliest (index of the first entry that is kept), total (payload bytes ever appended),
--       cut (those of them that are trimmed), r:<reader> (next index of each reader with a position),
--       pages ("<next> <number of pages>" after the last write: fewer pages than that were removed by somebody else),
--       told ("<first> <last> <epoch> <seq> <producer>": what was said of that, and which run heard it, by its last seq)
--   sp:{tag}:s:<stream>  stream  pages; entry id <index of its first message>-0        owner: appends
--       p producer, e epoch, f first seq, n count, t wall clock in microseconds, c payload bytes appended to the stream
--       before this page (so that trimming needs to look at one page only), b body
--   sp:{tag}:p:<stream>  hash    producer to "<epoch> <last seq>", never removed       owner: open.lua, appends

local function load_stream(h, s, p)
  local head = redis.call("HMGET", h, "incarnation", "next", "earliest", "total", "cut", "max_bytes", "max_age_us", "force", "pages",
    "told")
  if not head[1] then
    return nil
  end
  -- A key of another type must fail before anything is written: Redis takes nothing back.
  local held = redis.call("XLEN", s)
  redis.call("HLEN", p)
  local counted_at, counted = string.match(head[9] or "", "^(%d+) (%d+)$")
  local lacks = counted_at == head[2] and held < tonumber(counted)
  return {
    lacks = lacks, counted = counted_at == head[2],
    h = h, s = s, p = p, incarnation = head[1], next = tonumber(head[2]), earliest = tonumber(head[3]),
    total = tonumber(head[4]), cut = tonumber(head[5]), max_bytes = tonumber(head[6]), max_age = tonumber(head[7]),
    force = head[8] == "1", told = head[10] or "", pages = {}, producers = {}, trimmed = false,
  }
end

-- Epoch and last seq of a producer, or nil.
local function find_producer(stream, name)
  local found = stream.producers[name] or redis.call("HGET", stream.p, name)
  if not found then
    return nil
  end
  local epoch, last = string.match(found, "^(%d+) (%d+)$")
  return epoch, tonumber(last)
end

local function set_producer(stream, name, epoch, last)
  stream.producers[name] = epoch .. " " .. text(last)
end

-- The first stored page that begins at an index or behind it, without its body, or nil.
local function page_at(stream, index)
  local entry = redis.call("XRANGE", stream.s, text(index) .. "-0", "+", "COUNT", 1)[1]
  if not entry then
    return nil
  end
  local field = entry[2]
  index = tonumber(string.match(entry[1], "^%d+"))
  return {index = index, stop = index + tonumber(field[8]), time = tonumber(field[10]), cut = tonumber(field[12])}
end

-- First and last index of what somebody else has removed, 0 and 0 for nothing. Of a hole between the first and the
-- last page that are left only these bounds are known. The next write is not told: the pages are counted anew.
local function find_removed(stream)
  local first = page_at(stream, 1)
  if not first then
    return stream.earliest, stream.next - 1
  end
  local entry = redis.call("XREVRANGE", stream.s, "+", "-", "COUNT", 1)[1]
  local last_start = tonumber(string.match(entry[1], "^%d+"))
  local last_stop = last_start + tonumber(entry[2][8])
  local is_behind = last_stop < stream.next
  if first.index > stream.earliest then
    return stream.earliest, is_behind and stream.next - 1 or first.index - 1
  end
  if is_behind then
    return last_stop, stream.next - 1
  end
  return first.stop, last_start - 1
end

-- The same for the run, or the opening, that hears of it. Its answer may be lost: so what it heard is kept, and said again
-- to its repeat.
local function removed_from(stream, producer, epoch, seq)
  if not stream.lacks then
    return 0, 0
  end
  local first, last = find_removed(stream)
  stream.tell = table.concat({text(first), text(last), epoch, text(seq), producer}, " ")
  return first, last
end

local function told_before(stream, producer, epoch, first_seq, last_seq)
  local first, last, of, seq, name = string.match(stream.told, "^(%d+) (%d+) (%d+) (%d+) (.*)$")
  if name ~= producer or of ~= epoch or tonumber(seq) < first_seq or tonumber(seq) > last_seq then
    return 0, 0
  end
  return tonumber(first), tonumber(last)
end

-- Readers with a position, and the next index of each, without those that were forgotten (FORGOTTEN, 2^52); and
-- whether there ever was one.
local function registered(stream)
  local readers, has_been_read = {}, false
  local head = redis.call("HGETALL", stream.h)
  for at = 1, #head, 2 do
    if string.sub(head[at], 1, 2) == "r:" then
      has_been_read = true
      if tonumber(head[at + 1]) < 4503599627370496 then
        readers[#readers + 1] = {name = string.sub(head[at], 3), next = math.min(tonumber(head[at + 1]), stream.next)}
      end
    end
  end
  table.sort(readers, function(one, other) return one.name < other.name end)
  return readers, has_been_read
end

-- The lowest index that some reader has still to read, and which one. Before the first reader of all it is 1: whoever
-- comes first is to find all that was appended.
local function lowest_unread(stream)
  local readers, has_been_read = registered(stream)
  local lowest, name = has_been_read and stream.next + 1 or 1, ""
  for _, reader in ipairs(readers) do
    if reader.next < lowest then
      lowest, name = reader.next, reader.name
    end
  end
  return lowest, name
end

-- The bound of the retention that `size` more bytes would break, counting what comes after `cut`; page: its oldest.
local function broken_bound(stream, cut, page, size, now)
  local kept = stream.total - cut
  if stream.max_bytes and kept > 0 and kept + size > stream.max_bytes then
    return "max_bytes=" .. text(stream.max_bytes)
  end
  if stream.max_age and page and now - page.time > stream.max_age then
    return "max_age_us=" .. text(stream.max_age)
  end
  return nil
end

local function cut_before(stream, index, page)
  stream.earliest = index
  stream.cut = page and page.cut or stream.written or stream.total
  stream.trimmed = true
end

-- Lets old pages go; returns the bound that would be broken all the same, or nil, and the reader that is furthest behind.
local function make_room(stream, size, now)
  if not (stream.max_bytes or stream.max_age) then
    return nil
  end
  local unread, reader = lowest_unread(stream)
  local keep = stream.force and stream.next or unread - 1
  local page = page_at(stream, stream.earliest)
  while page and page.stop <= keep and broken_bound(stream, stream.cut, page, size, now) do
    local next_page = page_at(stream, page.stop)
    cut_before(stream, page.stop, next_page)
    page = next_page
  end
  if stream.force then
    return nil
  end
  -- A page that is read and stays as the anchor is no reason to refuse new messages for ever.
  local cut = stream.cut
  if page and page.stop <= unread then
    page = page_at(stream, page.stop)
    cut = page and page.cut or stream.written or stream.total
  end
  return broken_bound(stream, cut, page, size, now), reader, unread
end

-- run: producer, epoch, first, count, size, pages of {first, count, size, body}. Changes the stream or replies a refusal.
local function append_run(stream, run, now)
  local epoch, last = find_producer(stream, run.producer)
  if not epoch then
    epoch, last = run.epoch, 0
  end
  if is_lower(run.epoch, epoch) then
    return {"fenced", epoch}
  end
  if is_lower(epoch, run.epoch) then
    last = 0
  end
  if run.first > last + 1 then
    return {"gap", last + 1}
  end
  local run_last = run.first + run.count - 1
  if run_last <= last then
    return {"stored", last, 0, 0, told_before(stream, run.producer, run.epoch, run.first, run_last)}
  end
  if run.first <= last then
    return {"overlap", last}  -- the caller cuts the run and asks again
  end
  local removed_first, removed_last = removed_from(stream, run.producer, run.epoch, run_last)
  local bound, reader, unread = make_room(stream, run.size, now)
  if bound then
    return {"full", bound, reader, unread, stream.next - unread}
  end
  local index = stream.next
  stream.written = stream.written or stream.total
  for _, page in ipairs(run.pages) do
    stream.pages[#stream.pages + 1] = {
      text(stream.next) .. "-0", "p", run.producer, "e", run.epoch, "f", page[1], "n", page[2],
      "t", text(now), "c", text(stream.total), "b", page[4],
    }
    stream.next = stream.next + tonumber(page[2])
    stream.total = stream.total + tonumber(page[3])
  end
  set_producer(stream, run.producer, run.epoch, run_last)
  return {"stored", run_last, run.count, index, removed_first, removed_last}
end

local function write_stream(stream)
  if stream.trimmed then
    redis.call("XTRIM", stream.s, "MINID", text(stream.earliest) .. "-0")
  end
  for _, page in ipairs(stream.pages) do
    redis.call("XADD", stream.s, unpack(page))
  end
  if stream.trimmed or #stream.pages > 0 or stream.lacks or not stream.counted then
    redis.call("HSET", stream.h, "pages", text(stream.next) .. " " .. text(redis.call("XLEN", stream.s)))
  end
  if stream.tell then
    redis.call("HSET", stream.h, "told", stream.tell)
  end
  if stream.trimmed or #stream.pages > 0 then
    redis.call("HSET", stream.h, "next", text(stream.next), "total", text(stream.total),
      "earliest", text(stream.earliest), "cut", text(stream.cut))
  end
  for name, value in pairs(stream.producers) do
    redis.call("HSET", stream.p, name, value)
  end
end

-- Takes a run from ARGV, from `at` on; returns it and the place after it.
local function take_run(at)
  local run = {producer = ARGV[at], epoch = ARGV[at + 1], first = tonumber(ARGV[at + 2]),
    count = tonumber(ARGV[at + 3]), size = tonumber(ARGV[at + 4]), pages = {}}
  local pages = tonumber(ARGV[at + 5])
  at = at + 6
  for page = 1, pages do
    run.pages[page] = {ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]}
    at = at + 4
  end
  return run, at
end
