// Keys and values of an item as kernels read them: in the workspace, at the caller, or in a cache.
#pragma once

#include "runtime/attend.h"

namespace attnc {

// Memory that has all keys kv_first .. kv_end of an item for one KV head.
struct KvPool {
    HeadRows k, v;  // of row 0
    int64_t rows;   // that a kernel may be told of
    // Row of key kv_first + 16 n, which the next 15 follow; null: a key's row is its distance from kv_first.
    const int32_t* runs;

    // Of the key that is `key` behind kv_first.
    int64_t row_of(int64_t key) const {
        return runs != nullptr ? runs[key / kRunKeys] + key % kRunKeys : key;
    }
};
KvPool kv_pool(const Wave& wave, const Item& item, int64_t kv_head);

// Runs of 16 keys from kv_first on, the last one cut short.
int64_t runs_of(const Item& item);

// Fills the items' tables of runs, where the plan has them.
WorkList key_runs_work(const Wave& wave);

// The rows of a block, one after another unless they may lie apart: where they lie, or copied to the worker's memory. Of rows
// before `needed` the contents are of no meaning.
struct KvRows {
    HeadRows k, v;
};
KvRows kv_rows(const Wave& wave, Worker& worker, const KvBlock& block);

// Copies rows of k or v that were just made, those of one head from `row` of the wave's new rows on, to the items' places in
// the cache: `count` rows, of which columns first_column .. first_column + columns.
struct NewRows {
    const float* from;  // column 0 of the row
    int64_t item;       // of the wave, to which the first row belongs
    int64_t item_row, count;
    int64_t kv_head, first_column, columns;
    bool values;  // false: keys
};
void keep_rows(const Wave& wave, const NewRows& rows);

// After success: the slots' lengths. Before anything is written: what rings will not hold any more.
void keep_lengths(const Request& request);
void forget_overwritten(const Request& request);

}  // namespace attnc
