#include "tests/support/faults.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace taper::test {
namespace {

struct Plan {
  bool is_planted = false;
  bool has_struck = false;
  Fault fault;
  int64_t left = 0;  // calls until it strikes
  int64_t calls = 0;
};
thread_local Plan plan;

#if !TAPER_NO_FAULTS
// Whether this call fails; errno is set then.
bool strikes(Call call) {
  if (!plan.is_planted || plan.fault.call != call) return false;
  ++plan.calls;
  const bool is_over = plan.has_struck && !plan.fault.lasts;
  if (is_over || (!plan.has_struck && --plan.left > 0)) return false;
  plan.has_struck = true;
  errno = plan.fault.error;
  return true;
}

// Of a disk that fills up in the middle of a write: the first one that fails takes half of its bytes.
bool takes_half(size_t bytes) {
  return plan.is_planted && plan.fault.call == Call::write && plan.fault.lasts && !plan.has_struck && plan.left == 1 &&
         bytes > 1;
}

template <class Function>
Function real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}
#endif

}  // namespace

const char* to_string(Call call) {
  constexpr const char* kNames[kCalls] = {"open", "read", "write", "sync", "rename", "make folder", "memory"};
  return kNames[static_cast<int>(call)];
}

PlantedFault::PlantedFault(const Fault& fault, int64_t n) { plan = {true, false, fault, n, 0}; }
PlantedFault::~PlantedFault() { plan.is_planted = false; }
bool PlantedFault::has_struck() const { return plan.has_struck; }
int64_t PlantedFault::calls() const { return plan.calls; }

}  // namespace taper::test

#if !TAPER_NO_FAULTS
using taper::test::Call;
using taper::test::mode_of;
using taper::test::real;
using taper::test::strikes;
using taper::test::takes_half;

// The system's functions, under their own names and with its own signatures.
extern "C" {

int open(const char* path, int flags, ...) {
  static const auto next = real<int (*)(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return strikes(Call::open) ? -1 : next(path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  static const auto next = real<int (*)(const char*, int, ...)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return strikes(Call::open) ? -1 : next(path, flags, mode);
}

FILE* fopen(const char* path, const char* mode) {
  static const auto next = real<FILE* (*)(const char*, const char*)>("fopen");
  return strikes(Call::open) ? nullptr : next(path, mode);
}

FILE* fopen64(const char* path, const char* mode) {
  static const auto next = real<FILE* (*)(const char*, const char*)>("fopen64");
  return strikes(Call::open) ? nullptr : next(path, mode);
}

DIR* opendir(const char* path) {
  static const auto next = real<DIR* (*)(const char*)>("opendir");
  return strikes(Call::open) ? nullptr : next(path);
}

ssize_t read(int file, void* to, size_t bytes) {
  static const auto next = real<ssize_t (*)(int, void*, size_t)>("read");
  return strikes(Call::read) ? -1 : next(file, to, bytes);
}

ssize_t write(int file, const void* from, size_t bytes) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  const bool is_half = takes_half(bytes);
  if (strikes(Call::write) && !is_half) return -1;
  return next(file, from, is_half ? bytes / 2 : bytes);
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  static const auto next = real<ssize_t (*)(int, const struct iovec*, int)>("writev");
  return strikes(Call::write) ? -1 : next(file, parts, count);
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  static const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return strikes(Call::write) ? -1 : next(file, from, bytes, at);
}

int fsync(int file) {
  static const auto next = real<int (*)(int)>("fsync");
  return strikes(Call::sync) ? -1 : next(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = real<int (*)(const char*, const char*)>("rename");
  return strikes(Call::rename) ? -1 : next(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = real<int (*)(const char*, mode_t)>("mkdir");
  return strikes(Call::make_folder) ? -1 : next(path, mode);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  static const auto next = real<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  return strikes(Call::memory) ? MAP_FAILED : next(at, bytes, protection, flags, file, offset);
}

void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  // By a neighbour of the function, so that a sanitizer that manages memory is not passed by.
  void* memory = nullptr;
  return strikes(Call::memory) || posix_memalign(&memory, alignment, bytes) != 0 ? nullptr : memory;
}

}  // extern "C"

void* operator new(size_t bytes) {
  // Destructors of the JSON library take small pieces and cannot bear that there are none: then the program ends as if
  // it had been killed.
  constexpr size_t kSmall = size_t{1} << 14;
  void* memory = bytes >= kSmall && strikes(Call::memory) ? nullptr : malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
#endif
