-- needs: streams
-- Takes an epoch for a producer (S-6): what is stored of it, and what is lost.
--   KEYS[1]  sp:{tag}:layout     string  layout version                 owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head, read only                owner: create.lua, appends
--   KEYS[3]  sp:{tag}:s:<stream> stream  pages, read only               owner: appends
--   KEYS[4]  sp:{tag}:p:<stream> hash    producers, one field written   owner: this script, appends
-- ARGV: version, producer, epoch, base. Replies: opened incarnation, last, first lost, last lost (0, 0: none), first and
-- last index removed by somebody else (0, 0: nothing); fenced epoch; missing.

local refusal = other_layout()
if refusal then
  return refusal
end
local stream = load_stream(KEYS[2], KEYS[3], KEYS[4])
if not stream then
  return {"missing"}
end
local producer, epoch, confirmed = ARGV[2], ARGV[3], tonumber(ARGV[4]) - 1
local known, last = find_producer(stream, producer)
if not known then
  known, last = epoch, confirmed
end
if is_lower(epoch, known) then
  return {"fenced", known}
end
if is_lower(known, epoch) then
  last = 0
end
local lost_first, lost_last = 0, 0
if last < confirmed then
  lost_first, lost_last, last = last + 1, confirmed, confirmed
end
set_producer(stream, producer, epoch, last)
local removed_first, removed_last = removed_from(stream, producer, epoch, last)
if removed_first == 0 then
  removed_first, removed_last = told_before(stream, producer, epoch, 0, last)
end
write_stream(stream)
return {"opened", stream.incarnation, last, lost_first, lost_last, removed_first, removed_last}
