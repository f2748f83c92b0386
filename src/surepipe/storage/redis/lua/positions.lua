-- needs: common
-- Positions of readers. Touches
--   sp:{tag}:i           hash  "<length of stream>:<stream>:<reader>" to a position      owner: claim.lua, commits
--       "<owner> <claimant> <tag> <next> <revision> <committed by> <anchor's epoch> <anchor's seq>
--        <length of anchor's producer>\n"
--       followed by the anchor's producer and the state. "-" where there is nothing.
--   sp:{tag}:h:<stream>  hash  its r:<reader> field, where the stream exists              owner: commits

local function find_position(i, field)
  local found = redis.call("HGET", i, field)
  if not found then
    return {owner = 0, claimant = "-", tag = "-", next = 0, revision = 0, by = 0}
  end
  local owner, claimant, tag, next, revision, by = string.match(found, "^(%d+) (%S+) (%S+) (%d+) (%d+) (%d+) ")
  return {owner = tonumber(owner), claimant = claimant, tag = tag, next = tonumber(next), revision = tonumber(revision),
    by = tonumber(by), raw = found}
end

-- A commit that was given up may come late: it takes neither the index back nor, at the same index, the state.
local function is_late(known, request)
  local next = tonumber(request.next)
  return next < known.next
    or (next == known.next and request.owner == known.by and request.revision < known.revision)
end

-- request: owner, tag, next (text), revision, rest (committed by, anchor and state as stored), previous_tag, expected_next. Returns the reply,
-- and the value to store when it is "committed".
local function commit_position(known, request)
  if request.owner < known.owner then
    return {"fenced", text(known.owner)}
  end
  local is_set = known.tag ~= "-"
  if request.expected_next ~= "" then
    local repeated = known.tag == request.tag and known.next == tonumber(request.next)
    local stands = is_set and known.next or 0
    local expected = (not is_set or known.tag == request.tag) and stands == tonumber(request.expected_next)
    if not (repeated or expected) then
      return {"kept", known.raw or ""}
    end
  end
  if is_set then
    if known.tag == request.tag and is_late(known, request) then
      return {"kept", known.raw}
    end
    if known.tag ~= request.tag and known.tag ~= request.previous_tag then
      return {"kept", known.raw}
    end
  end
  local value = text(request.owner) .. " " .. known.claimant .. " " .. request.tag .. " " .. request.next .. " "
    .. text(request.revision) .. " " .. request.rest
  return {"committed"}, value
end

-- Stores a committed position and registers the reader with its stream.
local function write_position(i, h, field, reader, value, next)
  redis.call("HSET", i, field, value)
  if redis.call("HEXISTS", h, "incarnation") == 1 then
    redis.call("HSET", h, "r:" .. reader, next)
  end
end

-- Takes a commit from ARGV, from `at` on; returns it and the place after it.
local function take_commit(at)
  return {field = ARGV[at], reader = ARGV[at + 1], owner = tonumber(ARGV[at + 2]), tag = ARGV[at + 3], next = ARGV[at + 4],
    rest = ARGV[at + 5], previous_tag = ARGV[at + 6], expected_next = ARGV[at + 7], revision = tonumber(ARGV[at + 8])}, at + 9
end
