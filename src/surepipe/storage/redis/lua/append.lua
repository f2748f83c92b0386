-- needs: streams
-- Appends a run by identity: all of it or nothing.
--   KEYS[1]  sp:{tag}:layout     string  layout version                           owner: whoever wrote first
--   KEYS[2]  sp:{tag}:h:<stream> hash    head: next, total, and what is trimmed   owner: create.lua, appends
--   KEYS[3]  sp:{tag}:s:<stream> stream  pages: one entry per page                owner: appends
--   KEYS[4]  sp:{tag}:p:<stream> hash    producers: this one's epoch and last     owner: open.lua, appends
-- ARGV: version, wall clock or "", then the run (take_run).
-- Replies: stored last, new, first index, first and last removed by somebody else (0, 0: nothing); gap expected; fenced epoch; full bound, reader, its next index, its lag; overlap last; missing.

local refusal = other_layout()
if refusal then
  return refusal
end
local stream = load_stream(KEYS[2], KEYS[3], KEYS[4])
if not stream then
  return {"missing"}
end
local reply = append_run(stream, take_run(3), wall_clock(ARGV[2]))
if reply[1] == "stored" then
  write_stream(stream)
end
return reply
