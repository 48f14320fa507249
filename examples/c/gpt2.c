/* Loads a GPT-2 in the format of llm.c, makes text, and trains one step on it.
 *
 *     gpt2 model.bin [tokenizer.bin [TOKENS]]
 *
 * Without a tokenizer, tokens are printed as numbers. The step prints the loss before and after it.
 */

#include <gt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 256, MODEL = 20240326, TOKENIZER = 20240328, LAYERS_MAX = 64, SEED = 42 };
/* The parameters of a block, and the place of each kind among the 16 kinds of a file. */
enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, OUT_W, OUT_B, BLOCK_KINDS };
static const double EPSILON = 1e-5, TEMPERATURE = 0.8;
static const double LEARNING_RATE = 1e-3, BETA1 = 0.9, BETA2 = 0.999, ADAM_EPSILON = 1e-8;

static gt_session *session;

static void fail(const char *path, const char *why) {
    fprintf(stderr, "%s: %s\n", path, why);
    exit(EXIT_FAILURE);
}

/* Prints the error and ends the program, unless the status is GT_OK. */
static void check(gt_status status) {
    if (status != GT_OK) {
        fail(gt_status_name(status), gt_last_error());
    }
}

/* Tensors that are freed together, once a result was computed of them. */
static gt_tensor **temporaries;
static size_t temporary_count, temporary_room;

static gt_tensor *keep(gt_tensor *tensor) {
    if (temporary_count == temporary_room) {
        temporary_room = 2 * temporary_room + 64;
        temporaries = realloc(temporaries, temporary_room * sizeof *temporaries);
        if (!temporaries) {
            fail("gpt2", "out of memory");
        }
    }
    return temporaries[temporary_count++] = tensor;
}

static void free_temporaries(void) {
    while (temporary_count > 0) {
        gt_tensor_free(temporaries[--temporary_count]);
    }
}

/* Makes a temporary of what a function writes to its last argument: NEW(gt_add, a, b). */
#define NEW(function, ...) (check(function(__VA_ARGS__, &made)), keep(made))

typedef struct {
    int64_t context, vocabulary, layers, heads, channels, padded;
    gt_tensor *wte, *wpe, *block[LAYERS_MAX][BLOCK_KINDS], *lnf_w, *lnf_b;
} model;

/* Reads one parameter. Rows of `shape` beyond `rows` are padding, which is left out. */
static gt_tensor *read_parameter(FILE *file, const char *path, int64_t rows, int64_t columns, int64_t padding) {
    const int64_t shape[] = {rows, columns};
    size_t count = (size_t)(rows * (columns ? columns : 1));
    float *numbers = malloc(count * sizeof *numbers);
    gt_tensor *tensor;
    if (!numbers || fread(numbers, sizeof *numbers, count, file) != count) {
        fail(path, "it is cut off");
    }
    check(gt_tensor_from_data(session, GT_FLOAT32, shape, columns ? 2 : 1, numbers, count * sizeof *numbers, &tensor));
    free(numbers);
    if (padding && fseek(file, (long)(padding * columns * (int64_t)sizeof(float)), SEEK_CUR)) {
        fail(path, "it is cut off");
    }
    check(gt_tensor_set_requires_grad(tensor, true));
    return tensor;
}

static FILE *open_file(const char *path, int32_t magic, int32_t *header) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    if (fread(header, sizeof *header, HEADER, file) != HEADER || header[0] != magic) {
        fail(path, magic == MODEL ? "it holds no model of llm.c" : "it holds no tokenizer of llm.c");
    }
    return file;
}

static void load(model *m, const char *path) {
    int32_t header[HEADER];
    FILE *file = open_file(path, MODEL, header);
    m->context = header[2], m->vocabulary = header[3], m->layers = header[4];
    m->heads = header[5], m->channels = header[6], m->padded = header[7];
    if (header[1] != 3) {
        fail(path, "its parameters are not float32");
    }
    if (m->context < 2 || m->vocabulary < 1 || m->layers < 1 || m->layers > LAYERS_MAX || m->heads < 1 ||
        m->channels < 1 || m->channels % m->heads || m->padded < m->vocabulary) {
        fail(path, "its sizes make no model");
    }
    const int64_t c = m->channels;
    /* Rows and columns of each kind; vectors have no columns. */
    const int64_t sizes[BLOCK_KINDS][2] = {{c, 0}, {c, 0}, {3 * c, c}, {3 * c, 0}, {c, c}, {c, 0},
                                           {c, 0}, {c, 0}, {4 * c, c}, {4 * c, 0}, {c, 4 * c}, {c, 0}};
    m->wte = read_parameter(file, path, m->vocabulary, c, m->padded - m->vocabulary);
    m->wpe = read_parameter(file, path, m->context, c, 0);
    for (int kind = 0; kind < BLOCK_KINDS; kind++) {
        for (int64_t layer = 0; layer < m->layers; layer++) {
            m->block[layer][kind] = read_parameter(file, path, sizes[kind][0], sizes[kind][1], 0);
        }
    }
    m->lnf_w = read_parameter(file, path, c, 0, 0);
    m->lnf_b = read_parameter(file, path, c, 0, 0);
    fclose(file);
}

static gt_tensor *normalised(gt_tensor *x, gt_tensor *weight, gt_tensor *bias) {
    gt_tensor *made;
    return NEW(gt_layer_norm, x, gt_of(weight), gt_of(bias), gt_number(EPSILON));
}

/* (1, length, channels) to (1, heads, length, channels / heads). */
static gt_tensor *by_head(const model *m, gt_tensor *x, int64_t length) {
    const int64_t shape[] = {1, length, m->heads, m->channels / m->heads}, order[] = {0, 2, 1, 3};
    gt_tensor *made;
    gt_tensor *split = NEW(gt_reshape, x, shape, 4);
    return NEW(gt_permute, split, order, 4);
}

static gt_tensor *attention(const model *m, gt_tensor *x, gt_tensor *const *p, int64_t length) {
    const int64_t shape[] = {1, length, m->channels}, order[] = {0, 2, 1, 3};
    gt_tensor *made, *parts[3];
    size_t count;
    gt_tensor *qkv = NEW(gt_linear, x, p[QKV_W], p[QKV_B]);
    check(gt_split(qkv, m->channels, 2, parts, 3, &count));
    for (size_t i = 0; i < count; i++) {
        parts[i] = by_head(m, keep(parts[i]), length);
    }
    gt_tensor *mixed = NEW(gt_scaled_dot_product_attention, parts[0], parts[1], parts[2], NULL, 0.0, true, NULL, false);
    gt_tensor *turned = NEW(gt_permute, mixed, order, 4);
    gt_tensor *joined = NEW(gt_reshape, turned, shape, 3);
    return NEW(gt_linear, joined, p[PROJ_W], p[PROJ_B]);
}

/* The logits of each of `length` tokens: (length, vocabulary). */
static gt_tensor *forward(const model *m, const int64_t *tokens, int64_t length) {
    const int64_t shape[] = {1, length}, rows[] = {length, m->vocabulary};
    gt_tensor *made, *unused;
    gt_tensor *indices =
        NEW(gt_tensor_from_data, session, GT_INT64, shape, 2, tokens, (size_t)length * sizeof *tokens);
    gt_tensor *places = NEW(gt_narrow, m->wpe, 0, 0, length);
    check(gt_embedding(indices, m->wte, NULL, NULL, 2.0, false, false, &made, &unused));
    gt_tensor *x = NEW(gt_add, gt_of(keep(made)), gt_of(places));
    gt_tensor_free(unused);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        gt_tensor *const *p = m->block[layer];
        gt_tensor *y = attention(m, normalised(x, p[LN1_W], p[LN1_B]), p, length);
        x = NEW(gt_add, gt_of(x), gt_of(y));
        y = NEW(gt_linear, normalised(x, p[LN2_W], p[LN2_B]), p[FC_W], p[FC_B]);
        y = NEW(gt_gelu_tanh, y);
        y = NEW(gt_linear, y, p[OUT_W], p[OUT_B]);
        x = NEW(gt_add, gt_of(x), gt_of(y));
    }
    gt_tensor *logits = NEW(gt_linear, normalised(x, m->lnf_w, m->lnf_b), m->wte, NULL);
    return NEW(gt_reshape, logits, rows, 2);
}

static gt_tensor *loss_of(const model *m, const int64_t *tokens, int64_t length) {
    gt_tensor *made;
    gt_tensor *logits = forward(m, tokens, length);
    gt_tensor *targets =
        NEW(gt_tensor_from_data, session, GT_INT64, &length, 1, tokens + 1, (size_t)length * sizeof *tokens);
    return NEW(gt_cross_entropy, logits, targets, NULL, NULL);
}

/* Draws the token after `length` tokens. */
static int64_t next_token(const model *m, const int64_t *tokens, int64_t length) {
    gt_tensor *made;
    gt_tensor *last = NEW(gt_narrow, forward(m, tokens, length), 0, length - 1, 1);
    gt_tensor *scaled = NEW(gt_div, gt_of(last), gt_number(TEMPERATURE));
    gt_tensor *probabilities = NEW(gt_softmax, scaled, -1);
    gt_tensor *drawn = NEW(gt_multinomial, probabilities, 1, true);
    int64_t token;
    check(gt_tensor_item_int(drawn, &token));
    free_temporaries();
    return token;
}

/* The first step of AdamW without decay, whose moments are zeros before it. */
static void update(gt_tensor *parameter) {
    gt_tensor *made, *gradient;
    bool before = gt_set_grad_enabled(false);
    check(gt_tensor_grad(parameter, &gradient));
    keep(gradient);
    gt_tensor *mean = NEW(gt_mul, gt_of(gradient), gt_number(1.0 - BETA1));
    gt_tensor *square = NEW(gt_mul, gt_of(gradient), gt_of(gradient));
    gt_tensor *variance = NEW(gt_mul, gt_of(square), gt_number(1.0 - BETA2));
    gt_tensor *corrected = NEW(gt_div, gt_of(mean), gt_number(1.0 - BETA1));
    gt_tensor *spread = NEW(gt_div, gt_of(variance), gt_number(1.0 - BETA2));
    gt_tensor *root = NEW(gt_sqrt, spread);
    gt_tensor *bounded = NEW(gt_add, gt_of(root), gt_number(ADAM_EPSILON));
    gt_tensor *step = NEW(gt_div, gt_of(corrected), gt_of(bounded));
    gt_tensor *scaled = NEW(gt_mul, gt_of(step), gt_number(LEARNING_RATE));
    gt_tensor *moved = NEW(gt_sub, gt_of(parameter), gt_of(scaled));
    check(gt_tensor_assign(parameter, moved));
    check(gt_tensor_zero_grad(parameter));
    gt_set_grad_enabled(before);
    free_temporaries();
}

static void each_parameter(const model *m, void (*work)(gt_tensor *)) {
    work(m->wte);
    work(m->wpe);
    for (int64_t layer = 0; layer < m->layers; layer++) {
        for (int kind = 0; kind < BLOCK_KINDS; kind++) {
            work(m->block[layer][kind]);
        }
    }
    work(m->lnf_w);
    work(m->lnf_b);
}

/* The bytes of each token, each with its length before it; NULL without a tokenizer. */
typedef struct {
    unsigned char *bytes;
    size_t *start;
    int64_t count, end;
} tokenizer;

static tokenizer load_tokenizer(const char *path) {
    int32_t header[HEADER];
    FILE *file = open_file(path, TOKENIZER, header);
    tokenizer t = {NULL, NULL, header[2], header[1] == 1 ? 50256 : header[3]};
    size_t at = 0, room = 256 * (size_t)(t.count > 0 ? t.count : 1);
    t.bytes = malloc(room);
    t.start = malloc(sizeof *t.start * (size_t)(t.count > 0 ? t.count : 1));
    if (!t.bytes || !t.start || !(room = fread(t.bytes, 1, room, file))) {
        fail(path, "it has no tokens");
    }
    for (int64_t i = 0; i < t.count; i++) {
        t.start[i] = at;
        if (at >= room || at + 1 + t.bytes[at] > room) {
            fail(path, "it is cut off");
        }
        at += 1 + (size_t)t.bytes[at];
    }
    fclose(file);
    return t;
}

static void print_token(const tokenizer *t, int64_t token) {
    if (t->bytes && token < t->count) {
        fwrite(t->bytes + t->start[token] + 1, 1, t->bytes[t->start[token]], stdout);
    } else {
        printf("%lld ", (long long)token);
    }
    fflush(stdout);
}

int main(int argc, char **argv) {
    static model m;
    tokenizer t = {NULL, NULL, 0, -1};
    int64_t count = argc > 3 ? atoll(argv[3]) : 32, *tokens;
    double before, after;

    if (argc < 2 || count < 1) {
        fprintf(stderr, "usage: %s model.bin [tokenizer.bin [TOKENS]]\n", argv[0]);
        return 2;
    }
    check(gt_session_open(NULL, "gpt2", &session));
    gt_manual_seed(SEED);
    load(&m, argv[1]);
    if (argc > 2) {
        t = load_tokenizer(argv[2]);
    }
    if (count >= m.context) {
        count = m.context - 1;
    }
    tokens = calloc((size_t)count + 1, sizeof *tokens);
    if (!tokens) {
        fail("gpt2", "out of memory");
    }
    tokens[0] = t.end >= 0 && t.end < m.vocabulary ? t.end : m.vocabulary - 1;
    gt_set_grad_enabled(false);
    for (int64_t i = 0; i < count; i++) {
        tokens[i + 1] = next_token(&m, tokens, i + 1);
        print_token(&t, tokens[i + 1]);
    }
    putchar('\n');

    gt_set_grad_enabled(true);
    gt_tensor *loss = loss_of(&m, tokens, count);
    check(gt_tensor_backward(loss, NULL, 0));
    check(gt_tensor_item(loss, &before));
    free_temporaries();
    each_parameter(&m, update);
    check(gt_tensor_item(loss_of(&m, tokens, count), &after));
    free_temporaries();
    printf("loss %.6f, after a step %.6f\n", before, after);

    each_parameter(&m, gt_tensor_free);
    free(tokens);
    free(temporaries);
    free(t.bytes);
    free(t.start);
    gt_session_close(session);
    return EXIT_SUCCESS;
}
