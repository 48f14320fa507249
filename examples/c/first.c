/* The smallest program: two random matrices, their product, and the sum of it. */

#include <gt.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the error message, if the status is one. */
static void check(gt_status status) {
    if (status != GT_OK) {
        fprintf(stderr, "%s: %s\n", gt_status_name(status), gt_last_error());
        exit(EXIT_FAILURE);
    }
}

int main(void) {
    const int64_t shape[] = {1000, 1000};
    gt_session *session;
    gt_tensor *a, *b, *product, *sum;
    double number;

    check(gt_session_open(NULL, "first", &session));
    check(gt_randn(session, shape, 2, GT_FLOAT32, &a));
    check(gt_randn(session, shape, 2, GT_FLOAT32, &b));
    check(gt_matmul(a, b, &product));
    check(gt_sum(product, NULL, 0, false, &sum));
    check(gt_tensor_item(sum, &number)); /* only this waits */
    printf("%g\n", number);

    gt_tensor_free(a);
    gt_tensor_free(b);
    gt_tensor_free(product);
    gt_tensor_free(sum);
    gt_session_close(session);
    return EXIT_SUCCESS;
}
