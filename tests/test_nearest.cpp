#include <doctest/doctest.h>

#include "engine/core/nearest.h"

using taper::edit_distance;
using taper::nearest_name;

TEST_CASE("nearest: distances count single slips") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("setps", "steps") == 1);
  CHECK(edit_distance("lr", "rl") == 1);
}

TEST_CASE("nearest: the likeliest name") {
  CHECK(nearest_name("setps", {"seed", "steps", "size"}) == "steps");
  CHECK(nearest_name("temp", {"top-p", "temperature"}) == "temperature");
  CHECK(nearest_name("x", {}) == "");
  CHECK(nearest_name(std::string(1000000, 'x'), {"a", "b"}) == "a");
}
