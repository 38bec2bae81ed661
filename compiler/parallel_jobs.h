// Several pieces of work at a time, each of which waits for a process of its own.
#pragma once

#include <cstddef>
#include <functional>

namespace attnc {

// Calls work(0) .. work(count - 1), on `jobs` threads; 0: one per CPU that this process may use. The first failure ends the
// others and is thrown. `progress` is called by one thread at a time, and may be empty.
void for_each_job(size_t count, int jobs, const std::function<void(int done, int all)>& progress,
                  const std::function<void(size_t)>& work);

}  // namespace attnc
