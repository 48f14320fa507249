/* Trains a small network to classify handwritten digits: the model of examples/digits.py, written in C.
 *
 *     make demo-c                       exports the images, compiles this and runs it
 *     digits digits.csv [EPOCHS]        runs the compiled program
 *
 * Each line of digits.csv is one image: 64 pixels from 0 (white) to 16 (black), and the digit it shows.
 * examples/c/export_digits.py writes the file from the 1,797 images of scikit-learn.
 */

#include <gt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIXELS = 64, HIDDEN = 128, CLASSES = 10, BATCH_SIZE = 64, IMAGES_MAX = 4096, SEED = 7 };
static const double LEARNING_RATE = 0.1, MOMENTUM = 0.9;

/* Prints the error and ends the program, unless the status is GT_OK. */
static void check(gt_status status) {
    if (status != GT_OK) {
        fprintf(stderr, "%s: %s\n", gt_status_name(status), gt_last_error());
        exit(EXIT_FAILURE);
    }
}

/* The images, their labels, and their number. */
static float pixels[IMAGES_MAX][PIXELS];
static int64_t labels[IMAGES_MAX];
static size_t image_count;

static void load(const char *path) {
    FILE *file = fopen(path, "r");
    double number;
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    for (image_count = 0; image_count < IMAGES_MAX && fscanf(file, "%lf,", &number) == 1; image_count++) {
        for (size_t i = 0; i <= PIXELS; i++) {
            if (i > 0 && fscanf(file, "%lf,", &number) != 1) {
                fprintf(stderr, "%s: image %zu has %zu numbers, not %d\n", path, image_count + 1, i, PIXELS + 1);
                exit(EXIT_FAILURE);
            }
            if (i < PIXELS) {
                pixels[image_count][i] = (float)(number / 16.0);
            } else {
                labels[image_count] = (int64_t)number;
            }
        }
    }
    fclose(file);
}

/* Swaps two images. */
static void swap(size_t a, size_t b) {
    int64_t label = labels[a];
    labels[a] = labels[b];
    labels[b] = label;
    for (size_t i = 0; i < PIXELS; i++) {
        float pixel = pixels[a][i];
        pixels[a][i] = pixels[b][i];
        pixels[b][i] = pixel;
    }
}

/* Shuffles the first `count` images (Fisher-Yates). */
static void shuffle(size_t count) {
    for (size_t i = count; i > 1; i--) {
        swap(i - 1, (size_t)rand() % i);
    }
}

/* A parameter and its velocity, the decaying sum of its gradients. */
typedef struct {
    gt_tensor *value, *velocity;
} parameter;

/* Uniform numbers in the range of torch.nn.Linear's initialisation, 1 / sqrt(inputs) around 0. */
static parameter make_parameter(gt_session *session, const int64_t *shape, size_t ndim, double inputs) {
    const double bound = 1.0 / sqrt(inputs);
    gt_tensor *uniform, *scaled;
    parameter made;
    check(gt_rand(session, shape, ndim, GT_FLOAT32, &uniform));
    check(gt_mul(gt_of(uniform), gt_number(2.0 * bound), &scaled));
    check(gt_sub(gt_of(scaled), gt_number(bound), &made.value));
    check(gt_tensor_set_requires_grad(made.value, true));
    check(gt_full(session, gt_number(0.0), shape, ndim, GT_FLOAT32, &made.velocity));
    gt_tensor_free(uniform);
    gt_tensor_free(scaled);
    return made;
}

/* One step of gradient descent with momentum. */
static void step(parameter *p) {
    gt_tensor *gradient, *decayed, *velocity, *update, *value;
    bool recording = gt_set_grad_enabled(false);
    check(gt_tensor_grad(p->value, &gradient));
    check(gt_mul(gt_of(p->velocity), gt_number(MOMENTUM), &decayed));
    check(gt_add(gt_of(decayed), gt_of(gradient), &velocity));
    check(gt_mul(gt_of(velocity), gt_number(LEARNING_RATE), &update));
    check(gt_sub(gt_of(p->value), gt_of(update), &value));
    check(gt_tensor_assign(p->value, value));
    check(gt_tensor_zero_grad(p->value));
    gt_tensor_free(p->velocity);
    p->velocity = velocity;
    gt_tensor_free(gradient);
    gt_tensor_free(decayed);
    gt_tensor_free(update);
    gt_tensor_free(value);
    gt_set_grad_enabled(recording);
}

/* A perceptron with one hidden layer: 64 pixels to the logits of ten digits. */
typedef struct {
    parameter weight1, bias1, weight2, bias2;
} model;

/* x @ weight + bias */
static gt_tensor *linear(const gt_tensor *x, const parameter *weight, const parameter *bias) {
    gt_tensor *product, *sum;
    check(gt_matmul(x, weight->value, &product));
    check(gt_add(gt_of(product), gt_of(bias->value), &sum));
    gt_tensor_free(product);
    return sum;
}

/* Returns the logits of images, `(count, 10)`. */
static gt_tensor *forward(const model *m, const gt_tensor *images) {
    gt_tensor *before, *hidden, *logits;
    before = linear(images, &m->weight1, &m->bias1);
    check(gt_relu(before, &hidden));
    logits = linear(hidden, &m->weight2, &m->bias2);
    gt_tensor_free(before);
    gt_tensor_free(hidden);
    return logits;
}

/* Makes tensors of `count` images from `first` on and of their labels. */
static void upload(gt_session *session, size_t first, size_t count, gt_tensor **images, gt_tensor **digits) {
    const int64_t shape[] = {(int64_t)count, PIXELS};
    check(gt_tensor_from_data(session, GT_FLOAT32, shape, 2, pixels[first], count * sizeof *pixels, images));
    check(gt_tensor_from_data(session, GT_INT64, shape, 1, &labels[first], count * sizeof *labels, digits));
}

/* Returns the fraction of images from `first` on whose largest logit is that of the right digit, and the mean
 * probability of the digits that are predicted: exp(largest logit - logsumexp(logits)). */
static double accuracy(gt_session *session, const model *m, size_t first, size_t count, double *confidence) {
    const int64_t classes[] = {1};
    gt_tensor *images, *digits, *logits, *predicted, *correct, *sum, *largest, *total_log, *log, *probability, *mean;
    double total;
    bool recording = gt_set_grad_enabled(false);
    upload(session, first, count, &images, &digits);
    logits = forward(m, images);
    check(gt_argmax(logits, classes, 1, false, &predicted));
    check(gt_eq(gt_of(predicted), gt_of(digits), &correct));
    check(gt_sum(correct, NULL, 0, false, &sum));
    check(gt_amax(logits, classes, 1, false, &largest));
    check(gt_logsumexp(logits, gt_list(classes, 1), false, &total_log));
    check(gt_sub(gt_of(largest), gt_of(total_log), &log));
    check(gt_exp(log, &probability));
    check(gt_mean(probability, NULL, 0, false, &mean));
    check(gt_tensor_item(sum, &total));
    check(gt_tensor_item(mean, confidence));
    gt_tensor_free(largest);
    gt_tensor_free(total_log);
    gt_tensor_free(log);
    gt_tensor_free(probability);
    gt_tensor_free(mean);
    gt_tensor_free(images);
    gt_tensor_free(digits);
    gt_tensor_free(logits);
    gt_tensor_free(predicted);
    gt_tensor_free(correct);
    gt_tensor_free(sum);
    gt_set_grad_enabled(recording);
    return total / (double)count;
}

/* Trains for one epoch on `count` images; returns the mean loss of the batches. */
static double train(gt_session *session, model *m, size_t count) {
    parameter *parameters[] = {&m->weight1, &m->bias1, &m->weight2, &m->bias2};
    gt_tensor *total = NULL;
    double batches = 0.0, sum;
    shuffle(count);
    for (size_t first = 0; first < count; first += BATCH_SIZE) {
        size_t size = count - first < BATCH_SIZE ? count - first : BATCH_SIZE;
        gt_tensor *images, *digits, *logits, *loss, *detached, *more;
        upload(session, first, size, &images, &digits);
        logits = forward(m, images);
        check(gt_cross_entropy(logits, digits, NULL, NULL, &loss));
        check(gt_tensor_backward(loss, NULL, 0));
        for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
            step(parameters[i]);
        }
        check(gt_tensor_detach(loss, &detached));
        if (total) {
            check(gt_add(gt_of(total), gt_of(detached), &more));
            gt_tensor_free(total);
            gt_tensor_free(detached);
            total = more;
        } else {
            total = detached;
        }
        batches += 1.0;
        gt_tensor_free(images);
        gt_tensor_free(digits);
        gt_tensor_free(logits);
        gt_tensor_free(loss);
    }
    /* Everything above is asynchronous. Only this waits for the daemon: once per epoch, for the mean loss. */
    check(gt_tensor_item(total, &sum));
    gt_tensor_free(total);
    return sum / batches;
}

int main(int argc, char **argv) {
    const int64_t weight1[] = {PIXELS, HIDDEN}, weight2[] = {HIDDEN, CLASSES};
    gt_session *session;
    model m;
    size_t test_count, train_count;
    double right, confidence;
    int epochs = argc > 2 ? atoi(argv[2]) : 60;

    if (argc < 2 || epochs < 1) {
        fprintf(stderr, "usage: %s digits.csv [EPOCHS]\n", argv[0]);
        return 2;
    }
    load(argv[1]);
    if (image_count < CLASSES) {
        fprintf(stderr, "%s: only %zu images\n", argv[1], image_count);
        return EXIT_FAILURE;
    }
    /* A quarter of the images is for the test. */
    srand(SEED);
    shuffle(image_count);
    test_count = image_count / 4;
    train_count = image_count - test_count;

    check(gt_session_open(NULL, "digits", &session));
    gt_manual_seed(SEED);
    m.weight1 = make_parameter(session, weight1, 2, PIXELS);
    m.bias1 = make_parameter(session, weight1 + 1, 1, PIXELS);
    m.weight2 = make_parameter(session, weight2, 2, HIDDEN);
    m.bias2 = make_parameter(session, weight2 + 1, 1, HIDDEN);

    for (int epoch = 1; epoch <= epochs; epoch++) {
        double loss = train(session, &m, train_count);
        if (epoch == 1 || epoch % 10 == 0) {
            printf("epoch %2d  loss %.4f\n", epoch, loss);
        }
    }
    right = accuracy(session, &m, 0, train_count, &confidence);
    printf("accuracy on %zu training images: %.1f%%, confidence %.1f%%\n", train_count, 100.0 * right,
           100.0 * confidence);
    right = accuracy(session, &m, train_count, test_count, &confidence);
    printf("accuracy on %zu unseen images: %.1f%%, confidence %.1f%%\n", test_count, 100.0 * right,
           100.0 * confidence);

    parameter *all[] = {&m.weight1, &m.bias1, &m.weight2, &m.bias2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        gt_tensor_free(all[i]->value);
        gt_tensor_free(all[i]->velocity);
    }
    gt_session_close(session);
    return EXIT_SUCCESS;
}
