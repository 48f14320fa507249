// The streams of the fake driver, shared with the fake BLAS library, which enqueues work on them.
#pragma once
#include <functional>
#include <vector>

struct FakeStream {
    bool captured = false;
    std::vector<std::function<void()>> kept;
    // The virtual time of the stream, which its events read.
    long long now_ns = 0;

    // Runs the work immediately, in this much virtual time, or stores it for the graph during a capture.
    void take(std::function<void()> work, long long ns = 1500000) {
        if (captured) {
            kept.push_back(std::move(work));
        } else {
            work();
            now_ns += ns;
        }
    }
};
