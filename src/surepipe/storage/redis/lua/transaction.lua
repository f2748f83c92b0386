-- needs: streams, positions
-- Appends, commits, values of tables, marks and one command of the caller's own, together or not at all. A hop (read,
-- forward, commit) is this with an append, and a commit that expects the position to be where the reader left it.
--   KEYS[1]  sp:{tag}:layout  string  layout version                                  owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i       hash    positions: those that are committed             owner: claim.lua, commits
--   KEYS[3 + 3n], [4 + 3n], [5 + 3n]  sp:{tag}:h|s|p:<stream>  hash, stream, hash: head, pages and producers of the
--                                                              n-th stream            owner: create.lua, appends
--   after those: sp:{tag}:k:<table>   hash    keys to values, of each table           owner: this script
--   after those: sp:{tag}:m:<mark>    stream  one entry, whose id is <number>-0, of each mark   owner: this script
--   after those: keys of the caller's own, of any type                                owner: the caller
-- ARGV: version, wall clock or "", number of streams, of tables, of marks, of requests, "1" when the first of them
-- decides (else ""); then each request: "append" or "commit", n of its stream, its fields (take_run, take_commit);
-- "put", n of its table, number of keys and values, each key and value; "drop", n of its table, number of keys, the
-- keys; "raise", n of its mark. Then the caller's command, if there is one.
-- Replies: done, refused or before (the append that decides was there), with one reply per request that was looked at
-- (as append.lua and commit.lua; changed; twice: an append beside one that is new was there); own, error text.

local refusal = other_layout()
if refusal then
  return refusal
end
local now, count, is_decided = wall_clock(ARGV[2]), tonumber(ARGV[6]), ARGV[7] == "1"
local streams, heads = {}, {}
for n = 0, tonumber(ARGV[3]) - 1 do
  heads[n] = KEYS[3 + 3 * n]
  streams[n] = load_stream(KEYS[3 + 3 * n], KEYS[4 + 3 * n], KEYS[5 + 3 * n])
end
local first_table = 3 + 3 * tonumber(ARGV[3])
local first_mark = first_table + tonumber(ARGV[4])
-- A key of another type must fail before anything is written.
for key = first_table, first_mark - 1 do
  redis.call("HLEN", KEYS[key])
end
for key = first_mark, first_mark + tonumber(ARGV[5]) - 1 do
  redis.call("XLEN", KEYS[key])
end

local positions, changes, at = {}, {}, 8
local function perform_append(n)
  local run
  run, at = take_run(at)
  return streams[n] and append_run(streams[n], run, now) or {"missing"}
end
local function perform_commit(n)
  local request
  request, at = take_commit(at)
  local pending = positions[request.field]
  local known = pending and pending.known or find_position(KEYS[2], request.field)
  local reply, value = commit_position(known, request)
  if value then
    local moved = {owner = request.owner, claimant = known.claimant, tag = request.tag, next = tonumber(request.next),
      revision = request.revision, by = request.owner, raw = value}
    positions[request.field] = {known = moved, h = heads[n], reader = request.reader}
  end
  return reply
end
local function note_change(command, n)
  local length = tonumber(ARGV[at])
  changes[#changes + 1] = {command = command, key = KEYS[first_table + n], from = at + 1, upto = at + length}
  at = at + 1 + length
  return {"changed"}
end
local function perform(kind, n)
  if kind == "append" then
    return perform_append(n)
  elseif kind == "commit" then
    return perform_commit(n)
  elseif kind == "raise" then
    changes[#changes + 1] = {mark = KEYS[first_mark + n]}
    return {"changed"}
  end
  return note_change(kind == "put" and "HSET" or "HDEL", n)
end

local replies, is_refused, fine = {}, false, {stored = true, committed = true, changed = true}
for number = 1, count do
  local kind, n = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  local reply = perform(kind, n)
  replies[number] = reply
  if is_decided and kind == "append" then
    local is_new = reply[1] == "stored" and reply[3] > 0
    if number == 1 and not is_new then
      return {reply[1] == "stored" and "before" or "refused", replies}
    elseif not is_new and (reply[1] == "stored" or reply[1] == "overlap") then
      replies[number] = {"twice"}
    end
  end
  is_refused = is_refused or not fine[replies[number][1]]
end
if is_refused then
  return {"refused", replies}
end

-- From here on nothing of ours can fail. The caller's command can, and then it has done nothing: so it goes first.
if ARGV[at] then
  local own = redis.pcall(unpack(ARGV, at))
  if type(own) == "table" and own.err then
    return {"own", own.err}
  end
end
settle_layout()
for n = 0, tonumber(ARGV[3]) - 1 do
  if streams[n] then
    write_stream(streams[n])
  end
end
for field, position in pairs(positions) do
  write_position(KEYS[2], position.h, field, position.reader, position.known.raw, text(position.known.next))
end
for _, change in ipairs(changes) do
  if change.mark then
    local entry = redis.call("XREVRANGE", change.mark, "+", "-", "COUNT", 1)[1]
    local number = entry and tonumber(string.match(entry[1], "^%d+")) or 0
    redis.call("XADD", change.mark, "MAXLEN", 1, text(number + 1) .. "-0", "n", text(number + 1))
  else
    -- Lua passes about 8,000 arguments at once; an even number keeps a key and its value in one call.
    for from = change.from, change.upto, 1000 do
      redis.call(change.command, change.key, unpack(ARGV, from, math.min(from + 999, change.upto)))
    end
  end
end
return {"done", replies}
