#include "runtime/cuda/device_cache.h"

#include "runtime/arithmetic.h"
#include "runtime/cuda/context.h"

namespace attnc::cuda {
namespace {

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

const CachePart& part_of(const attnc_cache& cache) { return *cache.at<CachePart>(cache.device_part); }

// Rows of so many bytes, each side's a pitch from each other.
struct Rows {
    void* data;
    int64_t pitch;
    bool on_host;
};
struct Extent {
    int64_t bytes, rows;
};

// Copies of one cache, in the default stream, where whoever asks for them waits until they are done.
class Copies {
public:
    Copies(attnc_error* error, const attnc_cache& cache) : error_(error), part_(part_of(cache)) {}

    // Whose rows are too far apart for the driver, or the same, goes row by row.
    attnc_status copy(const Rows& to, const Rows& from, const Extent& extent) const {
        if (extent.bytes == 0 || extent.rows == 0) return ATTNC_OK;
        const auto can = [&](const Rows& rows) {
            return rows.pitch >= extent.bytes && rows.pitch <= kMaxSpan;
        };
        if (can(to) && can(from)) return copy_block(to, from, extent);
        for (int64_t row = 0; row < extent.rows; ++row) {
            ATTNC_TRY(copy_block(row_of(to, row, extent), row_of(from, row, extent), {extent.bytes, 1}));
        }
        return ATTNC_OK;
    }
    attnc_status clear(void* to, int64_t bytes) const {
        ATTNC_CUDA_TRY(error_, part_.driver, MemsetD8Async,
                       (address_of(to), 0, static_cast<size_t>(bytes), nullptr));
        return ATTNC_OK;
    }
    attnc_status wait() const {
        ATTNC_CUDA_TRY(error_, part_.driver, StreamSynchronize, (nullptr));
        return ATTNC_OK;
    }
    // Runs body() -> attnc_status in the cache's context, and waits for what it began, after a failure too.
    template <typename Body>
    attnc_status run(const Body& body) const {
        return in_context(error_, part_.driver, part_.context, [&] {
            const attnc_status status = body();
            const attnc_status waited = wait();
            return status != ATTNC_OK ? status : waited;
        });
    }

private:
    static Rows row_of(const Rows& rows, int64_t row, const Extent& extent) {
        return {static_cast<unsigned char*>(rows.data) + row * rows.pitch, extent.bytes, rows.on_host};
    }
    attnc_status copy_block(const Rows& to, const Rows& from, const Extent& extent) const {
        Copy2D copy = {};
        copy.from_type = from.on_host ? kHostMemory : kDeviceMemory;
        copy.to_type = to.on_host ? kHostMemory : kDeviceMemory;
        if (from.on_host) copy.from_host = from.data;
        if (!from.on_host) copy.from_device = address_of(from.data);
        if (to.on_host) copy.to_host = to.data;
        if (!to.on_host) copy.to_device = address_of(to.data);
        copy.from_pitch = static_cast<size_t>(from.pitch);
        copy.to_pitch = static_cast<size_t>(to.pitch);
        copy.width = static_cast<size_t>(extent.bytes);
        copy.height = static_cast<size_t>(extent.rows);
        ATTNC_CUDA_TRY(error_, part_.driver, Memcpy2DUnaligned_v2, (&copy));
        return ATTNC_OK;
    }

    attnc_error* error_;
    const CachePart& part_;
};

// Lengths and first_held of slots, from one on: two rows.
Rows keys_on_device(const attnc_cache& cache, int64_t slot) {
    return {in_cache<int32_t>(cache, cache.lengths) + slot, cache.first_held - cache.lengths, false};
}
constexpr Extent keys_extent(int64_t slots) { return {slots * static_cast<int64_t>(sizeof(int32_t)), 2}; }

// K or V: planes of rows for each head.
struct Planes {
    int64_t offset, width, features;
};
Planes k_planes(const attnc_cache& cache) { return {cache.k, cache.qk_width, cache.head_dim}; }
Planes v_planes(const attnc_cache& cache) { return {cache.v, cache.v_width, cache.v_head_dim}; }

float* row_of(const attnc_cache& cache, const Planes& planes, int64_t head, int64_t row) {
    return in_cache<float>(cache, planes.offset) + (head * cache.rows + row) * planes.width;
}

// Heads' rows between a tensor and the cache, whose padding stays 0.
attnc_status move_run(const Copies& copies, const Transfer& t, bool imports, const Planes& planes,
                      const OutView& view, int64_t item, int64_t first, const RowRun& run) {
    const attnc_cache& cache = *t.use.cache;
    for (int64_t head = 0; view.data != nullptr && head < cache.kv_heads; ++head) {
        const Rows theirs = {outside(view, item, head, first), view.row_stride * kFloat, false};
        const Rows ours = {row_of(cache, planes, head, run.row), planes.width * kFloat, false};
        const Extent extent = {planes.features * kFloat, run.count};
        ATTNC_TRY(imports ? copies.copy(ours, theirs, extent) : copies.copy(theirs, ours, extent));
    }
    return ATTNC_OK;
}

attnc_status move_item(const Copies& copies, const Transfer& t, bool imports, int64_t item) {
    const attnc_cache& cache = *t.use.cache;
    return for_each_run(t, item, [&](int64_t first, const RowRun& run) {
        ATTNC_TRY(move_run(copies, t, imports, k_planes(cache), t.key, item, first, run));
        return move_run(copies, t, imports, v_planes(cache), t.value, item, first, run);
    });
}

// Slots that take over one another; the one behind the last is a place to put one aside. What they have is in the block while
// they do.
struct DeviceSlots {
    attnc_cache& cache;
    const int64_t* from;
    const Copies& copies;

    int32_t* lengths() const { return cache.at<int32_t>(cache.staged); }
    int32_t* first_held() const { return lengths() + cache.slots; }
    Rows staged() const { return {lengths(), cache.slots * static_cast<int64_t>(sizeof(int32_t)), true}; }

    // Rows that hold keys: the whole ring once it has gone round.
    int64_t rows_held(int64_t slot) const { return least(lengths()[slot], cache.capacity); }

    attnc_status copy_rows(int64_t from_slot, int64_t to, int64_t rows) const {
        for (const Planes& planes : {k_planes(cache), v_planes(cache)}) {
            const int64_t pitch = cache.rows * planes.width * kFloat;
            ATTNC_TRY(copies.copy({row_of(cache, planes, 0, to * cache.slot_rows), pitch, false},
                                  {row_of(cache, planes, 0, from_slot * cache.slot_rows), pitch, false},
                                  {rows * planes.width * kFloat, cache.kv_heads}));
        }
        return ATTNC_OK;
    }
    void copy_keys(int64_t from_slot, int64_t to) const {
        lengths()[to] = lengths()[from_slot];
        first_held()[to] = first_held()[from_slot];
    }
    attnc_status copy(int64_t from_slot, int64_t to) const {
        ATTNC_TRY(copy_rows(from_slot, to, rows_held(from_slot)));
        copy_keys(from_slot, to);
        return ATTNC_OK;
    }
    attnc_status rotate(int64_t first) const {
        const int64_t aside = cache.slots, rows = rows_held(first);
        const int32_t length = lengths()[first], held = first_held()[first];
        ATTNC_TRY(copy_rows(first, aside, rows));
        int64_t slot = first;
        for (; from[slot] != first; slot = from[slot]) ATTNC_TRY(copy(from[slot], slot));
        ATTNC_TRY(copy_rows(aside, slot, rows));
        lengths()[slot] = length, first_held()[slot] = held;
        return ATTNC_OK;
    }
};

}  // namespace

attnc_status create_cache(const attnc_layer& any_layer, attnc_cache& cache, attnc_error* error) {
    const DeviceLayer& layer = device_layer(any_layer);
    *cache.at<CachePart>(cache.device_part) = {layer.driver, layer.context};
    const Copies copies(error, cache);
    // Kernels multiply the features of padding, so they must be 0; whole rows are written before they are read.
    const bool padded = cache.qk_width != cache.head_dim || cache.v_width != cache.v_head_dim;
    const int64_t bytes = padded ? cache.device_bytes : cache.k;
    return copies.run([&] { return bytes > 0 ? copies.clear(cache.device_memory, bytes) : ATTNC_OK; });
}

attnc_status check_cache_context(const attnc_layer& layer, const attnc_cache& cache, attnc_error* error) {
    if (part_of(cache).context == device_layer(layer).context) return ATTNC_OK;
    return fail(error, ATTNC_BAD_VALUE, {"cache was made in another context of the device than the layer"});
}

attnc_status read_slot_keys(const attnc_cache& cache, int64_t slot, SlotKeys* keys, attnc_error* error) {
    int32_t numbers[2] = {};
    const Copies copies(error, cache);
    const Rows here = {numbers, sizeof(int32_t), true};
    ATTNC_TRY(copies.run([&] { return copies.copy(here, keys_on_device(cache, slot), keys_extent(1)); }));
    *keys = {numbers[0], numbers[1]};
    return ATTNC_OK;
}

attnc_status write_slot_keys(attnc_cache& cache, int64_t slot, const SlotKeys& keys, attnc_error* error) {
    int32_t numbers[2] = {static_cast<int32_t>(keys.length), static_cast<int32_t>(keys.first_held)};
    const Copies copies(error, cache);
    const Rows here = {numbers, sizeof(int32_t), true};
    return copies.run([&] { return copies.copy(keys_on_device(cache, slot), here, keys_extent(1)); });
}

attnc_status transfer_rows(const Transfer& t, bool imports, attnc_error* error) {
    const Copies copies(error, *t.use.cache);
    return copies.run([&] {
        for (int64_t item = 0; item < t.batch; ++item) ATTNC_TRY(move_item(copies, t, imports, item));
        return ATTNC_OK;
    });
}

attnc_status reorder_slots(attnc_cache& cache, const int64_t* from, int64_t count, attnc_error* error) {
    const Copies copies(error, cache);
    DeviceSlots slots = {cache, from, copies};
    const Rows there = keys_on_device(cache, 0);
    const Extent extent = keys_extent(cache.slots);
    return copies.run([&] {
        ATTNC_TRY(copies.copy(slots.staged(), there, extent));
        ATTNC_TRY(copies.wait());  // the numbers are here
        ATTNC_TRY(reorder(slots, cache, from, count));
        return copies.copy(there, slots.staged(), extent);
    });
}

}  // namespace attnc::cuda
