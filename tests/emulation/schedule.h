// The order in which an emulated device runs what real ones run at once. Right kernels give the same bits in each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace taper::emulation {

struct Schedule {
  enum class Order : uint8_t {
    ascending,   // blocks and threads by number, each to its next barrier
    descending,  // the other way round
    run_ahead,   // in random order, and who is released last goes on first: a warp runs ahead to the next barrier while
                 // others have not begun
  };
  Order order = Order::ascending;
  uint64_t seed = 0;  // of run_ahead
};

// Absent, as null pointers, where the tests are linked with the kernels of a real device.
[[gnu::weak]] std::string to_string(const Schedule& schedule);
[[gnu::weak]] void set_schedule(const Schedule& schedule);

}  // namespace taper::emulation
