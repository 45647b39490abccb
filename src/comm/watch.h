// Notices when a process of a run is gone or stuck, whatever its other threads are waiting for.
//
// A star of TCP connections around process 0, each with a heartbeat and a thread of its own. A connection that closes without a
// farewell is a process that died, one that stays silent is a process that hangs or was stopped. Process 0 tells the others,
// so that all end with the same line.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct WatchOptions {
  int process = 0;
  std::vector<std::string> names;  // of each process, as messages name it: "rank 2 on node7"
  double lost_after_seconds = 8;
  // Hands the text of process 0 to all processes; called once by every process while it connects.
  std::function<std::string(const std::string&)> from_leader;
  // Called on the watching thread with one line about a process that is lost, or what Tell() was given elsewhere; it should end the
  // process. first_to_know: it should say why, too; in one process, which is 0, or 1 where 0 is lost.
  std::function<void(const std::string& line, bool first_to_know)> lost;
};

class Watch {
 public:
  // Connects all processes. Throws Failed where that cannot be done.
  explicit Watch(WatchOptions options);
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  // Says farewell.
  ~Watch();

  // Makes every other process end with this line.
  void Tell(const std::string& line);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
