-- Shared by all scripts; touches
--   KEYS[1]  sp:{tag}:layout  string  layout version of everything under the tag   owner: whoever wrote first
-- ARGV[1] is the layout version that the caller knows.
--
-- Lua numbers are exact to 2^53 only. Indexes, seqs and sizes stay below that and are numbers here; epochs,
-- incarnations, tags and claimants reach 2^63 and stay decimal text, compared by length, then by value.

local function text(number)
  return string.format("%.0f", number)  -- tostring turns to 1e+15 at 10^15
end

local function is_lower(epoch, other)
  if #epoch ~= #other then
    return #epoch < #other
  end
  return epoch < other
end

-- A reply when another version of the layout is stored, else nil.
local layout_is_stored = false
local function other_layout()
  local found = redis.call("GET", KEYS[1])
  layout_is_stored = found and true
  if found and found ~= ARGV[1] then
    return {"layout", found}
  end
  return nil
end

-- For scripts that may be the first to write under this tag.
local function settle_layout()
  if not layout_is_stored then
    redis.call("SET", KEYS[1], ARGV[1])
  end
end

-- Microseconds of the wall clock: what the caller gave, else the server's.
local function wall_clock(given)
  if given ~= "" then
    return tonumber(given)
  end
  local time = redis.call("TIME")
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
