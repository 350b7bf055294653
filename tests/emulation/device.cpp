#include "tests/emulation/device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/random.h"
#include "tests/emulation/access_checker.h"
#include "tests/emulation/fiber.h"
#include "tests/emulation/gpu_backend.h"
#include "tests/emulation/schedule.h"
#include "tests/emulation/shared_memory.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace taper::emulation {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = 256 << 10;

// Lanes of one warp on their way into one shuffle.
struct Gathering {
  unsigned mask = 0, arrived = 0;
  const char* what = nullptr;
  Site site{};
  Combine combine = nullptr;
  void* lanes[kWarp] = {};
};

struct Warp {
  unsigned ended = 0;                 // lanes, and those that never were
  uint16_t barriers = 0;              // __syncwarp that it has passed
  std::vector<Gathering> gatherings;  // open ones: lanes that parted ways may wait in several
};

struct PendingCopy {
  void* to;
  const void* from;
  size_t bytes, zeros;
};

struct Thread {
  enum class State : uint8_t { ready, at_barrier, in_warp, ended };
  State state = State::ready;
  bool has_started = false;
  int stack = -1;
  Site site{};
  std::vector<PendingCopy> copies;  // not yet committed
  std::vector<std::vector<PendingCopy>> groups;
};

class Machine {
 public:
  Machine() {
    void* memory = mmap(nullptr, kStackBytes * kMostThreads, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(memory != MAP_FAILED, "emulated device: no memory for the stacks of its threads");
    stacks_ = static_cast<char*>(memory);
    fibers_ = std::vector<Fiber>(kMostThreads);
  }

  void run_block(unsigned count, size_t shared_bytes, Site launched_at, void (*body)(const void*), const void* context);

  void wait_for_block(Site site);
  void gather(unsigned mask, const char* what, Site site, void* data, Combine combine);
  [[noreturn]] void fail_here(Site site, std::string text);

  unsigned current() const { return current_; }
  Thread& thread() { return threads_[current_]; }
  SharedMemory& shared() { return shared_; }
  const Schedule& schedule() const { return schedule_; }
  void set_schedule(const Schedule& schedule) { schedule_ = schedule; }

  // Numbers 0 to count - 1 in the order of the schedule. `round` tells random orders apart.
  std::vector<unsigned> order(unsigned count, uint64_t round) const;

 private:
  static void run_threads();
  void set_thread_index(unsigned thread);
  bool take_next(unsigned& thread);
  void release(std::vector<unsigned> threads);
  void suspend();
  void end_thread();
  void complete(Warp& warp, size_t gathering, unsigned first_thread);
  void complete_gatherings(unsigned warp);
  void pass_barrier_if_complete();
  std::string waiting() const;

  Schedule schedule_;
  SharedMemory shared_;
  char* stacks_ = nullptr;
  std::vector<Fiber> fibers_;
  std::vector<int> free_stacks_;
  Fiber host_;

  // Of the block that runs.
  void (*body_)(const void*) = nullptr;
  const void* context_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;
  size_t ready_begin_ = 0;
  unsigned current_ = 0;
  unsigned at_barrier_ = 0, ended_ = 0;
  uint16_t barriers_ = 0;  // that the block has passed
  uint64_t round_ = 0;
  std::string error_;
};

Machine& machine() {
  static Machine& instance = *new Machine;
  return instance;
}

void Machine::set_thread_index(unsigned thread) {
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
  runner.thread = static_cast<uint16_t>(thread);
  runner.barriers = barriers_;
  runner.warp_barriers = warps_[thread / kWarp].barriers;
}

std::vector<unsigned> Machine::order(unsigned count, uint64_t round) const {
  std::vector<unsigned> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0u);
  if (schedule_.order == Schedule::Order::descending) std::reverse(numbers.begin(), numbers.end());
  if (schedule_.order == Schedule::Order::run_ahead) {
    const Random random(schedule_.seed + 977 * round, RandomStream::test);
    for (unsigned i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[random.u32_at(i) % i]);
  }
  return numbers;
}

// Makes threads ready; those of one warp stay together, warps and lanes go in the order of the schedule.
void Machine::release(std::vector<unsigned> threads) {
  if (schedule_.order == Schedule::Order::ascending) {
    std::sort(threads.begin(), threads.end());
  } else if (schedule_.order == Schedule::Order::descending) {
    std::sort(threads.begin(), threads.end(), std::greater<>());
  } else {
    ++round_;
    std::vector<unsigned> rank_of_warp(warps_.size()), rank_of_lane(kWarp);
    const auto warps = order(static_cast<unsigned>(warps_.size()), 2 * round_), lanes = order(kWarp, 2 * round_ + 1);
    for (size_t i = 0; i < warps.size(); ++i) rank_of_warp[warps[i]] = static_cast<unsigned>(i);
    for (size_t i = 0; i < lanes.size(); ++i) rank_of_lane[lanes[i]] = static_cast<unsigned>(i);
    std::sort(threads.begin(), threads.end(), [&](unsigned a, unsigned b) {
      return std::pair(rank_of_warp[a / kWarp], rank_of_lane[a % kWarp]) <
             std::pair(rank_of_warp[b / kWarp], rank_of_lane[b % kWarp]);
    });
  }
  for (const unsigned thread : threads) {
    threads_[thread].state = Thread::State::ready;
    ready_.push_back(thread);
  }
}

bool Machine::take_next(unsigned& thread) {
  if (ready_begin_ == ready_.size()) return false;
  if (schedule_.order == Schedule::Order::run_ahead) {
    thread = ready_.back();
    ready_.pop_back();
  } else {
    thread = ready_[ready_begin_++];
  }
  if (ready_begin_ == ready_.size()) {
    ready_.clear();
    ready_begin_ = 0;
  }
  return true;
}

// Where every stack begins. A thread that ends without having waited leaves its stack to the next.
void Machine::run_threads() {
  Machine& m = machine();
  for (;;) {
    const int stack = m.threads_[m.current_].stack;
    m.body_(m.context_);
    m.end_thread();
    unsigned next = 0;
    if (!m.error_.empty() || !m.take_next(next)) {
      m.free_stacks_.push_back(stack);
      m.fibers_[static_cast<size_t>(stack)].switch_to(m.host_);
    } else if (m.threads_[next].has_started) {
      m.free_stacks_.push_back(stack);
      m.current_ = next;
      m.set_thread_index(next);
      m.fibers_[static_cast<size_t>(stack)].switch_to(m.fibers_[static_cast<size_t>(m.threads_[next].stack)]);
    } else {
      m.current_ = next;
      m.threads_[next].stack = stack;
      m.threads_[next].has_started = true;
      m.set_thread_index(next);
    }
  }
}

// The running thread waits: goes on with the next that is ready, or back to run_block() where there is none.
void Machine::suspend() {
  Fiber& here = fibers_[static_cast<size_t>(threads_[current_].stack)];
  unsigned next = 0;
  if (!error_.empty() || !take_next(next)) return here.switch_to(host_);
  if (next == current_) return;
  current_ = next;
  set_thread_index(next);
  Thread& thread = threads_[next];
  if (!thread.has_started) {
    thread.has_started = true;
    thread.stack = free_stacks_.back();
    free_stacks_.pop_back();
    fibers_[static_cast<size_t>(thread.stack)].prepare(stacks_ + kStackBytes * static_cast<size_t>(thread.stack),
                                                       kStackBytes, run_threads);
  }
  here.switch_to(fibers_[static_cast<size_t>(thread.stack)]);
}

void Machine::run_block(unsigned count, size_t shared_bytes, Site launched_at, void (*body)(const void*),
                        const void* context) {
  body_ = body;
  context_ = context;
  watch_block();
  shared_.reset(shared_bytes, launched_at);
  threads_.assign(count, Thread());
  warps_.assign((count + kWarp - 1) / kWarp, Warp());
  if (count % kWarp != 0) warps_.back().ended = ~0u << (count % kWarp);
  free_stacks_.resize(count);
  for (unsigned i = 0; i < count; ++i) free_stacks_[i] = static_cast<int>(count - 1 - i);
  ready_.clear();
  ready_begin_ = at_barrier_ = ended_ = barriers_ = 0;
  error_.clear();
  std::vector<unsigned> all(count);
  std::iota(all.begin(), all.end(), 0u);
  release(std::move(all));

  unsigned first = 0;
  take_next(first);
  current_ = first;
  set_thread_index(first);
  threads_[first].has_started = true;
  threads_[first].stack = free_stacks_.back();
  free_stacks_.pop_back();
  Fiber& fiber = fibers_[static_cast<size_t>(threads_[first].stack)];
  fiber.prepare(stacks_ + kStackBytes * static_cast<size_t>(threads_[first].stack), kStackBytes, run_threads);
  host_.switch_to(fiber);

  if (error_.empty() && ended_ < count) {
    error_ = fmt::format("{}:{}: the threads of a block wait for each other:{}", launched_at.file, launched_at.line,
                         waiting());
  }
  if (!error_.empty()) throw Error(error_);
  shared_.check_canaries();
}

std::string Machine::waiting() const {
  std::string text;
  Site last{"", 0};
  for (size_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.state == Thread::State::ended || (thread.site.file == last.file && thread.site.line == last.line)) {
      continue;
    }
    last = thread.site;
    text += fmt::format(" thread {} and others at {}:{};", i, last.file, last.line);
  }
  return text + fmt::format(" {} of {} have ended", ended_, threads_.size());
}

void Machine::fail_here(Site site, std::string text) {
  error_ = fmt::format("{}:{}: {}; thread {} of block ({}, {}, {})", site.file, site.line, text, current_, blockIdx.x,
                       blockIdx.y, blockIdx.z);
  std::string().swap(text);  // this stack is left as it is, and no destructor runs on it
  fibers_[static_cast<size_t>(threads_[current_].stack)].switch_to(host_);
  std::abort();  // nobody comes back here
}

void Machine::end_thread() {
  threads_[current_].state = Thread::State::ended;
  ++ended_;
  const unsigned warp = current_ / kWarp;
  warps_[warp].ended |= 1u << (current_ % kWarp);
  if (!warps_[warp].gatherings.empty()) complete_gatherings(warp);
  if (at_barrier_ > 0) pass_barrier_if_complete();
}

void Machine::pass_barrier_if_complete() {
  if (at_barrier_ + ended_ < threads_.size()) return;
  std::vector<unsigned> waiting;
  const Thread* first = nullptr;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.state != Thread::State::at_barrier) continue;
    if (!first) first = &thread;
    waiting.push_back(i);
    if (thread.site.line != first->site.line || thread.site.file != first->site.file) {
      error_ = fmt::format("{}:{}: threads of one block wait at this barrier and others at {}:{}", first->site.file,
                           first->site.line, thread.site.file, thread.site.line);
      return;
    }
  }
  if (ended_ > 0) {
    error_ = fmt::format("{}:{}: a barrier that {} of {} threads never reach", first->site.file, first->site.line,
                         ended_, threads_.size());
    return;
  }
  at_barrier_ = 0;
  ++barriers_;
  release(std::move(waiting));
}

void Machine::wait_for_block(Site site) {
  Thread& mine = thread();
  mine.state = Thread::State::at_barrier;
  mine.site = site;
  ++at_barrier_;
  pass_barrier_if_complete();
  suspend();
}

void Machine::gather(unsigned mask, const char* what, Site site, void* data, Combine combine) {
  const unsigned lane = current_ % kWarp, warp_number = current_ / kWarp;
  if ((mask >> lane & 1) == 0) fail_here(site, fmt::format("{} with a mask that leaves out its own lane", what));
  Warp& warp = warps_[warp_number];
  auto open = std::find_if(warp.gatherings.begin(), warp.gatherings.end(),
                           [&](const Gathering& g) { return g.mask == mask && (g.arrived >> lane & 1) == 0; });
  if (open == warp.gatherings.end()) {
    Gathering fresh;
    fresh.mask = mask;
    fresh.what = what;
    fresh.site = site;
    fresh.combine = combine;
    warp.gatherings.push_back(fresh);
    open = warp.gatherings.end() - 1;
  } else if (open->combine != combine || open->site.line != site.line || open->site.file != site.file) {
    fail_here(site,
              fmt::format("{} meets {} of other lanes at {}:{}", what, open->what, open->site.file, open->site.line));
  }
  open->arrived |= 1u << lane;
  open->lanes[lane] = data;
  Thread& mine = thread();
  mine.state = Thread::State::in_warp;
  mine.site = site;
  complete_gatherings(warp_number);
  suspend();
}

void Machine::complete_gatherings(unsigned warp_number) {
  Warp& warp = warps_[warp_number];
  for (size_t i = 0; i < warp.gatherings.size();) {
    if ((warp.gatherings[i].mask & ~(warp.gatherings[i].arrived | warp.ended)) != 0) {
      ++i;
      continue;
    }
    const Gathering done = warp.gatherings[i];
    warp.gatherings.erase(warp.gatherings.begin() + static_cast<std::ptrdiff_t>(i));
    done.combine(done.lanes);
    if (std::strcmp(done.what, "__syncwarp") == 0) ++warp.barriers;
    std::vector<unsigned> lanes;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if (done.arrived >> lane & 1) lanes.push_back(warp_number * kWarp + lane);
    }
    release(std::move(lanes));
  }
}

void finish(const PendingCopy& copy) {
  note_access(copy.from, copy.bytes, Access::read, nullptr);
  note_access(copy.to, copy.bytes + copy.zeros, Access::write, nullptr);
  std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(static_cast<char*>(copy.to) + copy.bytes, 0, copy.zeros);
}

}  // namespace

std::string to_string(const Schedule& schedule) {
  if (schedule.order == Schedule::Order::ascending) return "ascending";
  if (schedule.order == Schedule::Order::descending) return "descending";
  return fmt::format("run ahead, seed {}", schedule.seed);
}

void set_schedule(const Schedule& schedule) { machine().set_schedule(schedule); }

namespace {

void run_grid(const gpu::Grid& grid, const Dimensions& block, size_t shared_bytes, void (*body)(const void*),
              const void* context) {
  const Site launched_at{grid.file, grid.line};
  const uint64_t count = uint64_t{block.x} * block.y * block.z;
  Machine& m = machine();
  gridDim = dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), static_cast<unsigned>(grid.z));
  blockDim = dim3(block.x, block.y, block.z);
  const uint64_t blocks = uint64_t{gridDim.x} * gridDim.y * gridDim.z;
  require(blocks <= 0x7fffffff, "{}:{}: too many blocks for the emulation; got {}", grid.file, grid.line, blocks);
  // Accesses are the same in every order, and watching them takes time.
  watch_launch(m.schedule().order == Schedule::Order::ascending);
  uint32_t block_number = 0;
  for (const unsigned number : m.order(static_cast<unsigned>(blocks), 0)) {
    blockIdx = {number % gridDim.x, number / gridDim.x % gridDim.y, number / (gridDim.x * gridDim.y)};
    runner.block = block_number++;
    m.run_block(static_cast<unsigned>(count), shared_bytes, launched_at, body, context);
  }
}

}  // namespace

void launch_grid(const gpu::Grid& grid, const Dimensions& block, size_t shared_bytes, void (*body)(const void*),
                 Context context) {
  const uint64_t count = uint64_t{block.x} * block.y * block.z;
  require(count > 0 && count <= kMostThreads && block.z <= 64,
          "{}:{}: a block's threads are out of range; got {} x {} x {}, want 1 to {} in all", grid.file, grid.line,
          block.x, block.y, block.z, kMostThreads);
  std::vector<std::max_align_t> copy(context.bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(copy.data(), context.data, context.bytes);
  enqueue([=, copy = std::move(copy)] { run_grid(grid, block, shared_bytes, body, copy.data()); });
}

void* dynamic_shared() { return machine().shared().dynamic(); }
void* shared_array(const void* tag, const char* name, size_t bytes, Site site) {
  return machine().shared().array(tag, name, bytes, site);
}
void wait_for_block(Site site) { machine().wait_for_block(site); }
void gather_warp(unsigned mask, const char* what, Site site, void* data, Combine combine) {
  machine().gather(mask, what, site, data, combine);
}
unsigned lane_of_thread() { return machine().current() % kWarp; }
void fail_in_kernel(Site site, const char* text) { machine().fail_here(site, text); }

void copy_later(void* to, const void* from, size_t bytes, size_t zeros) {
  machine().thread().copies.push_back({to, from, bytes, zeros});
}
void commit_copies() {
  Thread& thread = machine().thread();
  thread.groups.push_back(std::exchange(thread.copies, {}));
}
void wait_for_copies(int pending_groups) {
  auto& groups = machine().thread().groups;
  while (groups.size() > static_cast<size_t>(pending_groups)) {
    for (const PendingCopy& copy : groups.front()) finish(copy);
    groups.erase(groups.begin());
  }
}

}  // namespace taper::emulation
