/* Steps of training by the CPU program of a checkout of llm.c, whose train_gpt2.c the compiler finds: see llmc.py.
 *
 *     llmc_step model.bin tokens.bin BATCH LENGTH
 *
 * The file has BATCH * (LENGTH + 1) tokens, as int32. For each line of standard input the program makes one step, as
 * llm.c's own loop does, and prints the loss before it and its seconds. */

#define TESTING /* leaves out llm.c's own main() */
#include "train_gpt2.c"

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s model.bin tokens.bin BATCH LENGTH\n", argv[0]);
        return 2;
    }
    int batch = atoi(argv[3]), length = atoi(argv[4]);
    size_t count = (size_t)batch * (length + 1);
    int *tokens = mallocCheck(count * sizeof(int));
    int *inputs = mallocCheck(count * sizeof(int)), *targets = mallocCheck(count * sizeof(int));
    FILE *file = fopenCheck(argv[2], "rb");
    freadCheck(tokens, sizeof(int), count, file);
    fcloseCheck(file);
    for (int b = 0; b < batch; b++) {
        memcpy(inputs + b * length, tokens + b * (length + 1), length * sizeof(int));
        memcpy(targets + b * length, tokens + b * (length + 1) + 1, length * sizeof(int));
    }
    GPT2 model;
    gpt2_build_from_checkpoint(&model, argv[1]);
    for (int step = 1; getchar() != EOF; step++) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        gpt2_forward(&model, inputs, targets, batch, length);
        gpt2_zero_grad(&model);
        gpt2_backward(&model);
        gpt2_update(&model, 1e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, step);
        clock_gettime(CLOCK_MONOTONIC, &end);
        printf("step %.9g %.9g\n", model.mean_loss, end.tv_sec - start.tv_sec + (end.tv_nsec - start.tv_nsec) / 1e9);
        fflush(stdout);
    }
    gpt2_free(&model);
    return 0;
}
