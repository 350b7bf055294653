#include "tests/emulation/access_checker.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/core/error.h"
#include "tests/emulation/device.h"

namespace taper::emulation {

Runner runner;

namespace {

constexpr size_t kCellBytes = 2;  // no element is smaller
constexpr uint32_t kWarp = 32;

struct Past {
  uint32_t launch = 0;  // for shared memory: the block's number among all
  Runner by;
};

struct Cell {
  Past write, read;
  uint32_t write_place = 0;  // offset in the program
  Bytes state = Bytes::forbidden;
  bool was_atomic = false;
  bool has_readers = false;        // several since the last barrier
  bool has_reader_blocks = false;  // of several blocks
};

struct Region {
  const char* begin = nullptr;
  size_t bytes = 0;
  Cell* cells = nullptr;
};

Region regions[2];  // by Memory
bool is_watching = false;
bool is_busy = false;  // the checker's own accesses are not checked
uint32_t launch_number = 0, block_number = 0;

Region* region_of(const void* address) {
  for (Region& region : regions) {
    const auto offset = static_cast<size_t>(static_cast<const char*>(address) - region.begin);
    if (offset < region.bytes) return &region;
  }
  return nullptr;
}

uint32_t offset_in_program(const void* place) {
  static const char* const begin = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&note_access), &info);
    return static_cast<const char*>(info.dli_fbase);
  }();
  return place ? static_cast<uint32_t>(static_cast<const char*>(place) - begin) : 0;
}

// "file:line" of an instruction before this offset, by the debugger's tables.
std::string name_of(uint32_t offset) {
  if (offset == 0) return "an unknown place";
  const std::string command =
      fmt::format("addr2line -e /proc/{}/exe {:#x} 2>/dev/null", static_cast<int>(getpid()), offset - 1);
  std::string text;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char line[512];
    if (std::fgets(line, sizeof line, pipe)) text = line;
    pclose(pipe);
  }
  text = text.substr(0, text.find_first_of(" \n"));
  return text.empty() ? fmt::format("instruction {:#x}", offset) : text;
}

// Whether what was done before is ordered before what the running thread does.
bool is_ordered(const Past& past, uint32_t launch) {
  if (past.launch != launch) return true;
  if (past.by.block != runner.block) return false;
  if (past.by.thread == runner.thread || past.by.barriers < runner.barriers) return true;
  return past.by.thread / kWarp == runner.thread / kWarp && past.by.warp_barriers < runner.warp_barriers;
}

[[noreturn]] void fail_at(const void* place, const std::string& text) {
  is_busy = false;
  const std::string where = name_of(offset_in_program(place));
  const std::string file = where.substr(0, where.rfind(':'));
  const int line = std::atoi(where.substr(where.rfind(':') + 1).c_str());
  static std::string kept;  // the error outlives this stack
  kept = file;
  fail_in_kernel({kept.c_str(), line}, text.c_str());
}

std::string describe(const Runner& by) { return fmt::format("thread {} of block {}", by.thread, by.block); }

void check_write(Cell& cell, uint32_t launch, bool is_atomic, const void* place) {
  if (!is_ordered(cell.write, launch) && !(is_atomic && cell.was_atomic)) {
    fail_at(place,
            fmt::format("a race: writes what {} wrote at {}", describe(cell.write.by), name_of(cell.write_place)));
  }
  const bool same_launch = cell.read.launch == launch;
  const bool others_read =
      same_launch && cell.has_readers && cell.read.by.barriers == runner.barriers &&
      !(cell.read.by.thread / kWarp == runner.thread / kWarp && cell.read.by.warp_barriers < runner.warp_barriers);
  if (!is_ordered(cell.read, launch) || others_read || (same_launch && cell.has_reader_blocks)) {
    fail_at(place, fmt::format("a race: writes what {} and perhaps others read", describe(cell.read.by)));
  }
}

void check_read(Cell& cell, uint32_t launch, const void* place) {
  if (cell.state == Bytes::unset) fail_at(place, "reads what was never written");
  if (!is_ordered(cell.write, launch)) {
    fail_at(place,
            fmt::format("a race: reads what {} wrote at {}", describe(cell.write.by), name_of(cell.write_place)));
  }
}

void note_read(Cell& cell, uint32_t launch) {
  if (cell.read.launch != launch) {
    cell.has_readers = cell.has_reader_blocks = false;
  } else if (cell.read.by.block != runner.block) {
    cell.has_readers = cell.has_reader_blocks = true;
  } else if (is_ordered(cell.read, launch)) {
    if (cell.read.by.thread != runner.thread || cell.read.by.barriers < runner.barriers) cell.has_readers = false;
  } else {
    cell.has_readers = true;
  }
  cell.read = {launch, runner};
}

}  // namespace

void watch_memory(Memory kind, const void* begin, size_t bytes) {
  const size_t cells = bytes / kCellBytes + 1;
  void* memory =
      mmap(nullptr, cells * sizeof(Cell), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "access checker: no memory");
  // Pages of zeros are cells that are forbidden and were never reached.
  static_assert(static_cast<int>(Bytes::forbidden) == 0);
  regions[static_cast<int>(kind)] = {static_cast<const char*>(begin), bytes, static_cast<Cell*>(memory)};
}

void mark_memory(const void* begin, size_t bytes, Bytes state) {
  Region* region = region_of(begin);
  if (!region || bytes == 0) return;
  const auto first = static_cast<size_t>(static_cast<const char*>(begin) - region->begin) / kCellBytes;
  for (size_t i = 0; i < (bytes + kCellBytes - 1) / kCellBytes; ++i) {
    region->cells[first + i] = Cell();
    region->cells[first + i].state = state;
  }
}

bool can_watch() {
#ifdef TAPER_ACCESS_CHECKER
  return true;
#else
  return false;
#endif
}

void watch_launch(bool is_watched) {
  is_watching = is_watched && can_watch();
  ++launch_number;
}

void watch_block() { ++block_number; }

void note_access(const void* address, size_t bytes, Access access, const void* place) {
  if (!is_watching || is_busy || bytes == 0) return;
  Region* region = region_of(address);
  if (!region) return;
  is_busy = true;
  // Shared memory is that of whatever block runs.
  const bool is_shared = region == &regions[static_cast<int>(Memory::shared)];
  const uint32_t launch = is_shared ? block_number : launch_number;
  const auto begin = static_cast<size_t>(static_cast<const char*>(address) - region->begin);
  for (size_t i = begin / kCellBytes; i <= (begin + bytes - 1) / kCellBytes; ++i) {
    Cell& cell = region->cells[i];
    if (cell.state == Bytes::forbidden) fail_at(place, "reaches memory outside of every array");
    if (access != Access::write) check_read(cell, access == Access::atomic && cell.was_atomic ? 0 : launch, place);
    if (access == Access::read) {
      note_read(cell, launch);
      continue;
    }
    check_write(cell, launch, access == Access::atomic, place);
    cell.state = Bytes::set;
    cell.write = {launch, runner};
    cell.write_place = offset_in_program(place);
    cell.was_atomic = access == Access::atomic;
    cell.read = {};
    cell.has_readers = cell.has_reader_blocks = false;
  }
  is_busy = false;
}

}  // namespace taper::emulation

#ifdef TAPER_ACCESS_CHECKER
using taper::emulation::Access;
using taper::emulation::note_access;

#define TAPER_HOOKS(bytes)                                                   \
  extern "C" void __tsan_read##bytes(const void* address) {                  \
    note_access(address, bytes, Access::read, __builtin_return_address(0));  \
  }                                                                          \
  extern "C" void __tsan_write##bytes(const void* address) {                 \
    note_access(address, bytes, Access::write, __builtin_return_address(0)); \
  }                                                                          \
  extern "C" void __tsan_unaligned_read##bytes(const void* address) {        \
    note_access(address, bytes, Access::read, __builtin_return_address(0));  \
  }                                                                          \
  extern "C" void __tsan_unaligned_write##bytes(const void* address) {       \
    note_access(address, bytes, Access::write, __builtin_return_address(0)); \
  }
TAPER_HOOKS(1)
TAPER_HOOKS(2)
TAPER_HOOKS(4)
TAPER_HOOKS(8)
TAPER_HOOKS(16)
extern "C" void __tsan_read_range(const void* address, size_t bytes) {
  note_access(address, bytes, Access::read, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(const void* address, size_t bytes) {
  note_access(address, bytes, Access::write, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(const void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}

// Atomics of the standard library in what was instrumented: done as they are, unwatched.
#define TAPER_ATOMICS(bits, type)                                                                                   \
  extern "C" type __tsan_atomic##bits##_load(const volatile type* at, int) {                                        \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                                   \
  }                                                                                                                 \
  extern "C" void __tsan_atomic##bits##_store(volatile type* at, type value, int) {                                 \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                                  \
  }                                                                                                                 \
  extern "C" type __tsan_atomic##bits##_fetch_add(volatile type* at, type value, int) {                             \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                                 \
  extern "C" type __tsan_atomic##bits##_fetch_sub(volatile type* at, type value, int) {                             \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                                         \
  }                                                                                                                 \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(volatile type* at, type* expected, type wanted, int, \
                                                               int) {                                               \
    return __atomic_compare_exchange_n(at, expected, wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);            \
  }
TAPER_ATOMICS(8, char)
TAPER_ATOMICS(32, int)
TAPER_ATOMICS(64, long)
#endif
