#include <doctest/doctest.h>

#include <csignal>
#include <initializer_list>

#include "engine/core/interrupt.h"

TEST_CASE("interrupt: a request stands until it is cleared") {
  taper::clear_stop_request();
  CHECK_FALSE(taper::stop_requested());
  taper::request_stop();
  CHECK(taper::stop_requested());
  taper::clear_stop_request();
  CHECK_FALSE(taper::stop_requested());
}

TEST_CASE("interrupt: SIGINT, SIGTERM and SIGHUP ask for a stop") {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(signal);
    taper::clear_stop_request();
    void (*before)(int) = std::signal(signal, SIG_DFL);
    taper::install_stop_signals();
    std::raise(signal);
    CHECK(taper::stop_requested());
    std::signal(signal, before);
    taper::clear_stop_request();
  }
}

TEST_CASE("interrupt: a hang-up that is ignored stays ignored") {
  void (*before)(int) = std::signal(SIGHUP, SIG_IGN);
  taper::clear_stop_request();
  taper::install_stop_signals();
  std::raise(SIGHUP);
  CHECK_FALSE(taper::stop_requested());
  std::signal(SIGHUP, before);
}
