#include "bench/peers/pool.h"

#include <chrono>

#include "compiler/fma_probe.h"
#include "compiler/layer_data.h"

namespace {

const attnc::FmaProbe& probe() {
    static const attnc::FmaProbe probe;
    return probe;
}

int probe_task(void* pieces, int64_t /*index*/) {
    probe().run(*static_cast<const int64_t*>(pieces));
    return 0;
}

}  // namespace

BenchPool* bench_pool_create(int64_t threads, char* error) {
    auto* pool = new BenchPool;
    pool->threads = threads;
    const bool made = attnc::without_exceptions(error, [&] {
        attnc_error reason;
        attnc::check_status(attnc_pool_create(threads, &pool->pool, &reason), reason, "attnc_pool_create");
    });
    if (made) return pool;
    delete pool;
    return nullptr;
}

void bench_pool_destroy(BenchPool* pool) {
    if (pool == nullptr) return;
    attnc_pool_destroy(pool->pool);
    delete pool;
}

double bench_probe(BenchPool* pool) {
    using Clock = std::chrono::steady_clock;
    const attnc_executor& executor = pool->executor();
    int64_t pieces = pool->threads == 1 ? 20 : 100;  // starting threads takes time too
    const Clock::time_point begin = Clock::now();
    executor.parallel_for(executor.context, pool->threads, probe_task, &pieces);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return static_cast<double>(pool->threads * pieces) * probe().operations() / seconds;
}

const char* bench_probe_name() { return probe().name(); }
