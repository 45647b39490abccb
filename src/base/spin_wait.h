// Waiting for another thread: a short spin, then sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep {

// Pauses spent before a wait of one of `threads` threads sleeps: some tens of microseconds, the length of a short step, where each
// may have a CPU of its own; next to none where they outnumber the CPUs, as spinning then only keeps the one waited for off its CPU.
int SpinsFor(int threads);

// Waits while `value` is `old`; returns what it became. Whoever changes the value notifies.
uint32_t WaitWhile(const std::atomic<uint32_t>& value, uint32_t old, int spins);

}  // namespace lockstep
