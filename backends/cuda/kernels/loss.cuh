// Negative log-likelihood and cross-entropy of class indices, and their gradients.
#pragma once
#include "checks.cuh"
#include "rows.cuh"

// The target classes of the samples, the weights of the classes, and the label smoothing.
struct Targets {
    const i64 *index;
    i64 classes, ignored;
    Numbers weight;
    f64 smoothing;
    Found *found;
};

// The target class of a sample; -1 if it is `ignored` or out of range, which is reported.
GT_DEVICE i64 class_of(const Targets &targets, i64 sample) {
    i64 index = targets.index[sample];
    if (index == targets.ignored) return -1;
    if (index >= 0 && index < targets.classes) return index;
    report(targets.found, INDEX_OUT_OF_RANGE, index, 1, targets.classes, sample);
    return -1;
}

// Writes the loss of each sample to `to` or, if that is null, in f64 to `losses`. With SCORES the input holds logits;
// without, log-probabilities.
template <typename T, bool SCORES, int V, int PACKS>
GT_DEVICE void class_loss(T *to, f64 *losses, const T *from, Targets targets, i64 rows, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    i64 columns = targets.classes;
    GT_FOR_TEAMS(team, at, rows) {
        bool there = at < rows;
        const T *start = from + at * columns;
        Rows<T, 1, V, PACKS> row(team, {start}, there ? columns : 0);
        C largest = C(0), log_sum = C(0), even = C(0);
        if constexpr (SCORES) {
            Exps<C> exps = exps_of(team, row);
            largest = exps.largest;
            log_sum = log(exps.sum);
        }
        if (targets.smoothing != 0) {
            row.each([&](i64 column, const C(&x)[1]) {
                even = fma(number_of<T>(targets.weight, column), log_sum - (x[0] - largest), even);
            });
            even = joined<Sum<C>>(team, even);
        }
        if (!there || team.lane != 0) continue;
        f64 loss = 0;
        i64 right = class_of(targets, at);
        if (right >= 0) {
            loss = f64(log_sum - (load(start + right) - largest)) * f64(number_of<T>(targets.weight, right));
            if (targets.smoothing != 0)
                loss = (1 - targets.smoothing) * loss + targets.smoothing / f64(columns) * f64(even);
        }
        if (to) store(to + at, C(loss));
        else losses[at] = loss;
    }
}

// Computed by one block: the sum of the losses if there are any, the total weight of the samples, and that of all
// classes.
template <typename T>
GT_DEVICE void class_totals(f64 (&totals)[3], const f64 *losses, const Targets &targets, i64 samples) {
    Team team(blockDim.x);
    totals[0] = totals[1] = totals[2] = 0;
    for (i64 i = team.lane; i < samples; i += team.size) {
        if (losses) totals[0] += losses[i];
        i64 right = class_of(targets, i);
        if (right >= 0) totals[1] += f64(number_of<T>(targets.weight, right));
    }
    for (i64 i = team.lane; i < targets.classes; i += team.size) totals[2] += f64(number_of<T>(targets.weight, i));
    for (int i = 0; i < 3; i++) totals[i] = joined<Sum<f64>>(team, totals[i]);
}

// The gradient of the losses. `grads` holds one gradient (`step` 0) or one for each sample (`step` 1); `totals` is from
// `class_totals`.
template <typename T, bool SCORES, int V, int PACKS>
GT_DEVICE void class_loss_backward(T *to, const T *grads, i64 step, const T *from, const f64 *totals, bool mean,
                                   Targets targets, i64 rows, u32 size) {
    typedef typename Compute<T>::type C;
    Team team(size);
    i64 columns = targets.classes;
    f64 share = mean ? 1 / totals[1] : 1, all = totals[2];
    GT_FOR_TEAMS(team, at, rows) {
        bool there = at < rows;
        T *made = to + at * columns;
        i64 right = there ? class_of(targets, at) : -1;
        f64 grad = there ? f64(load(grads + at * step)) * share : 0;
        f64 pull = right < 0 ? 0 : grad * (1 - targets.smoothing) * f64(number_of<T>(targets.weight, right));
        if constexpr (SCORES) {
            Rows<T, 1, V, PACKS> row(team, {from + at * columns}, there ? columns : 0);
            Exps<C> exps = exps_of(team, row);
            f64 even = right < 0 ? 0 : grad * targets.smoothing / f64(columns);
            C factor = C((pull + even * all) / f64(exps.sum));
            row.write(made, [&](i64 column, const C(&x)[1]) {
                if (right < 0) return C(0);
                C slope = exp(x[0] - exps.largest) * factor;
                if (column == right) slope -= C(pull);
                if (targets.smoothing != 0) slope -= C(even * f64(number_of<T>(targets.weight, column)));
                return slope;
            });
        } else if (there) {
            for (i64 column = team.lane; column < columns; column += size)
                store(made + column, column == right ? C(-pull) : C(0));
        }
    }
}
