// The streams of the fake driver, shared with the fake BLAS library, which enqueues work on them.
#pragma once
#include <functional>
#include <vector>

struct FakeStream {
    bool captured = false;
    std::vector<std::function<void()>> kept;

    // Runs the work immediately or, during a capture, stores it for the graph.
    void take(std::function<void()> work) {
        if (captured) kept.push_back(std::move(work));
        else work();
    }
};
