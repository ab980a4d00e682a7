-- Loops of one kind of work for sysbench, whose LuaJIT compiles them to machine code. `sysbench loop.lua --work=KIND`.
-- Each event is one fixed piece of work. Where the folder holds a file `progress`, each thread counts its events there
-- (lab/on_off/progress.py), so that they can be read at any moment without asking anybody.
local ffi = require("ffi")
ffi.cdef[[
int open(const char *path, int flags, ...);
void *mmap(void *addr, size_t length, int prot, int flags, int fd, long offset);
void *memcpy(void *to, const void *from, size_t n);
]]

sysbench.cmdline.options = {
  work = {"kind of work", "spin"},
  kb = {"KB of memory that it works on", 0},
}

local O_RDWR, PROT_RW, MAP_SHARED, BYTES, FIRST = 2, 3, 1, 4096, 8
local count, step, mine

-- xorshift32: the same numbers in every run
local state = 2463534242
local bit = require("bit")
local function draw()
  state = bit.bxor(state, bit.lshift(state, 13))
  state = bit.bxor(state, bit.rshift(state, 17))
  state = bit.bxor(state, bit.lshift(state, 5))
  return bit.band(state, 0x7fffffff)
end

local make = {}

function make.spin()  -- prime numbers by division, as sysbench's own cpu test: registers only
  return function()
    local found = 0
    for n = 3, 500 do
      local prime = 1
      for d = 2, math.sqrt(n) do
        if n % d == 0 then prime = 0 break end
      end
      found = found + prime
    end
    return found
  end
end

function make.stream(bytes)  -- copies a part of a large block to another: memory bandwidth
  local part = 65536
  local block = ffi.new("uint8_t[?]", bytes)
  ffi.fill(block, bytes, 1)
  local half, at = bytes / 2, 0
  return function()
    ffi.C.memcpy(block + half + at, block + at, part)
    at = (at + part) % (half - part)
    at = at - at % part
  end
end

function make.chase(bytes)  -- follows a random cycle of cache lines: latency of the cache that just holds them
  local lines = bytes / 64
  local ring = ffi.new("int32_t[?]", lines * 16)
  local order = ffi.new("int32_t[?]", lines)
  for i = 0, lines - 1 do order[i] = i end
  for i = lines - 1, 1, -1 do  -- Sattolo's shuffle: one cycle through all
    local j = draw() % i
    order[i], order[j] = order[j], order[i]
  end
  for i = 0, lines - 1 do ring[i * 16] = order[i] * 16 end
  local at = 0
  return function()
    for _ = 1, 2000 do at = ring[at] end
    return at
  end
end

function make.sort(bytes)  -- sorts one piece after another of a large array of numbers
  local numbers = bytes / 8
  local all = ffi.new("double[?]", numbers)
  for i = 0, numbers - 1 do all[i] = draw() end
  local at, piece = 0, {}
  return function()
    for i = 1, 1000 do piece[i] = all[at + i - 1] end
    at = (at + 1000) % (numbers - 1000)
    table.sort(piece)
    return piece[1]
  end
end

local function tree(depth)
  if depth == 0 then return {0, "x"} end
  return {tree(depth - 1), tree(depth - 1)}
end

function make.garbage(bytes)  -- trees of small objects that are dropped beside some that stay: a tracing collector at work
  local kept, slots, next = {}, math.max(1, bytes / 16384), 0
  return function()
    next = next % slots + 1
    kept[next] = tree(7)
    return tree(6)
  end
end

function make.encode(bytes)  -- looks for 16x16 blocks of one picture in the next: motion search, most of a video encoder
  local width = 1024
  local rows = bytes / 2 / width
  local old, new = ffi.new("uint8_t[?]", bytes / 2), ffi.new("uint8_t[?]", bytes / 2)
  for i = 0, bytes / 2 - 1 do
    old[i] = draw() % 256
    new[i] = (old[i] + draw() % 8) % 256
  end
  local x, y = 16, 16
  return function()
    local best = 1e9
    for dy = -3, 3, 3 do
      for dx = -3, 3, 3 do
        local sum = 0
        for j = 0, 15 do
          local a, b = (y + j) * width + x, (y + j + dy) * width + x + dx
          for i = 0, 15 do sum = sum + math.abs(new[a + i] - old[b + i]) end
        end
        if sum < best then best = sum end
      end
    end
    x = x + 16
    if x > width - 32 then x, y = 16, y + 16 end
    if y > rows - 32 then y = 16 end
    return best
  end
end

function thread_init()
  local kind = make[sysbench.opt.work]
  if kind == nil then error("no such work: " .. sysbench.opt.work) end
  step = kind(sysbench.opt.kb * 1024)
  local file = ffi.C.open("progress", O_RDWR)
  if file >= 0 then
    count = ffi.cast("volatile uint64_t *", ffi.C.mmap(nil, BYTES, PROT_RW, MAP_SHARED, file, 0))
    mine = FIRST + sysbench.tid
  end
end

function event()
  step()
  if count ~= nil then count[mine] = count[mine] + 1 end
end
