// What the fake driver's streams are, for the fake library that gives them work.
#pragma once
#include <functional>
#include <vector>

struct FakeStream {
    bool captured = false;
    std::vector<std::function<void()>> kept;

    // Does it at once, or keeps it for a graph.
    void take(std::function<void()> work) {
        if (captured) kept.push_back(std::move(work));
        else work();
    }
};
