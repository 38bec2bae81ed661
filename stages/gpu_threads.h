// What the GPU forms of the stages share: values that each thread of a block keeps for itself while the block goes through
// a serial loop in which all threads meet. There are two ways to keep them, with the same bits:
//
// - In registers. The Func has no argument for the thread: it is allocated once for each of them, as a register array is,
//   and updates run over the threads as reduction variables. For Halide that is a race; on a GPU each thread has its own
//   copy. On a CPU it would be wrong.
// - In shared memory, race-free: the thread's coordinates are arguments.
//
// Threads x walk along columns (keys, features, columns of weights), threads y along rows; both hold them by fours.
#pragma once

#include <Halide.h>

#include <string>
#include <utility>
#include <vector>

namespace attnc {

constexpr int kQuad = 4;  // neighbouring rows or columns of a thread: loads and stores of 16 bytes

struct GpuThreads {
    int x = 16, y = 8;
    bool register_state = true;
};

// The threads and steps that an update runs over.
struct ThreadDomain {
    Halide::Expr x, y;
    Halide::VarOrRVar x_loop = Halide::Var(), y_loop = Halide::Var();
    std::vector<Halide::RVar> steps;
    Halide::RDom domain;  // undefined: no steps, and threads are arguments
};

// One value, or a tile of them, for each thread.
struct ThreadFunc {
    using Vars = std::vector<Halide::Var>;
    using Exprs = std::vector<Halide::Expr>;

    GpuThreads threads;
    Vars tile, blocks;  // innermost first
    Halide::Var x{"thread_x"}, y{"thread_y"};
    Halide::Func func;

    ThreadFunc(const std::string& name, const GpuThreads& of, Vars tile_vars, Vars block_vars)
        : threads(of), tile(std::move(tile_vars)), blocks(std::move(block_vars)), func(name) {}

    // The first definition: value(domain), of all threads.
    template <typename Value>
    ThreadDomain define(const std::string& name, const Value& value) {
        const Exprs all = arguments(exprs(tile), x, y, exprs(blocks));
        if (threads.register_state) func(all) = Halide::undef<float>();
        ThreadDomain domain = over(name);
        // A definition has to name the variables that it runs over.
        const Halide::Expr first = threads.register_state
                                       ? Halide::select(domain.x + domain.y >= 0, value(domain), 0.0f)
                                       : value(domain);
        at(exprs(tile), domain) = first;
        return domain;
    }
    // Definition `number`, from 0.
    Halide::Stage stage(int number) {
        const int update = threads.register_state ? number : number - 1;
        return update < 0 ? Halide::Stage(func) : func.update(update);
    }
    int last_definition() const { return func.num_update_definitions() - (threads.register_state ? 1 : 0); }

    // All threads, each going through `steps` (pairs of a first one and a count).
    ThreadDomain over(const std::string& name,
                      const std::vector<std::pair<Halide::Expr, Halide::Expr>>& steps = {}) const {
        Halide::Region ranges;
        if (threads.register_state) ranges = {{0, threads.x}, {0, threads.y}};
        for (const auto& [first, count] : steps) ranges.emplace_back(first, count);
        ThreadDomain made = {.x = x, .y = y, .x_loop = x, .y_loop = y, .steps = {}, .domain = {}};
        if (ranges.empty()) return made;
        made.domain = Halide::RDom(ranges, name);
        const size_t first_step = threads.register_state ? 2 : 0;
        for (size_t n = first_step; n < ranges.size(); ++n) {
            made.steps.push_back(made.domain[static_cast<int>(n)]);
        }
        if (!threads.register_state) return made;
        made.x = made.domain[0];
        made.y = made.domain[1];
        made.x_loop = made.domain[0];
        made.y_loop = made.domain[1];
        return made;
    }

    // The tile's element of a thread. In an update the blocks are the Func's own; elsewhere they are given.
    Halide::FuncRef at(const Exprs& element, const Halide::Expr& of_x, const Halide::Expr& of_y,
                       const Exprs& block) const {
        return func(arguments(element, of_x, of_y, block));
    }
    Halide::FuncRef at(const Exprs& element, const ThreadDomain& domain) const {
        return at(element, domain.x, domain.y, exprs(blocks));
    }
    static Exprs exprs(const Vars& vars) { return {vars.begin(), vars.end()}; }

private:
    Exprs arguments(const Exprs& element, const Halide::Expr& of_x, const Halide::Expr& of_y,
                    const Exprs& block) const {
        Exprs all = element;
        if (!threads.register_state) {
            all.push_back(of_x);
            all.push_back(of_y);
        }
        all.insert(all.end(), block.begin(), block.end());
        return all;
    }
};

}  // namespace attnc
