-- needs: streams, positions
-- Appends, commits and one command of the caller's own, together or not at all. A hop (read, forward, commit) is this
-- with an append, and a commit that expects the position to be where the reader left it.
--   KEYS[1]  sp:{tag}:layout  string  layout version                                  owner: whoever wrote first
--   KEYS[2]  sp:{tag}:i       hash    positions: those that are committed             owner: claim.lua, commits
--   KEYS[3 + 3n], [4 + 3n], [5 + 3n]  sp:{tag}:h|s|p:<stream>  hash, stream, hash: head, pages and producers of the
--                                                              n-th stream            owner: create.lua, appends
--   after those: keys of the caller's own, of any type                                owner: the caller
-- ARGV: version, wall clock or "", number of streams, number of requests, then each request: "append" or "commit", n of
-- its stream, its fields (take_run, take_commit); then the caller's command, if there is one.
-- Replies: done or refused, one reply per request (as append.lua and commit.lua); own, error text.

local refusal = other_layout()
if refusal then
  return refusal
end
local now, requests = wall_clock(ARGV[2]), tonumber(ARGV[4])
local streams, heads = {}, {}
for n = 0, tonumber(ARGV[3]) - 1 do
  heads[n] = KEYS[3 + 3 * n]
  streams[n] = load_stream(KEYS[3 + 3 * n], KEYS[4 + 3 * n], KEYS[5 + 3 * n])
end

local positions, replies, refused, at = {}, {}, false, 5
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
for number = 1, requests do
  local kind, n = ARGV[at], tonumber(ARGV[at + 1])
  at = at + 2
  local reply = kind == "append" and perform_append(n) or kind == "commit" and perform_commit(n)
  refused = refused or (reply[1] ~= "stored" and reply[1] ~= "committed")
  replies[number] = reply
end
if refused then
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
return {"done", replies}
