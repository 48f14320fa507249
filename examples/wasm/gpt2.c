/* Text by a GPT-2 from inside a sandbox: a guest of WASI-NN, which a host such as `python -m gt.wasi_nn` runs.
 *
 *     python -m ziglang cc -target wasm32-wasi -O2 -s gpt2.c -o gpt2.wasm
 *     python -m gt.wasi_nn --graph gpt2=model.bin --folder . gpt2.wasm gpt2 tokenizer.bin 'Once upon a time' -k 40
 *
 * The graph gets the whole sequence of tokens, and gives the logits of the token after it and the number of tokens for
 * which there is room. The tokens are drawn here, as `gt.llm.sample` draws them: a seed gives the same text.
 */

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* WASI-NN ---------------------------------------------------------------------------------------------------------- */

enum { SUCCESS, INVALID_ARGUMENT, INVALID_ENCODING, MISSING_MEMORY, BUSY, RUNTIME_ERROR, UNSUPPORTED, TOO_LARGE, NOT_FOUND };
enum { TYPE_I32 = 4 };

typedef struct {
    const uint32_t *dimensions;
    uint32_t rank;
    uint8_t type;
    const void *data;
    uint32_t bytes;
} tensor;

#define IMPORT(name) __attribute__((import_module("wasi_ephemeral_nn"), import_name(name)))
IMPORT("load_by_name") uint32_t nn_load_by_name(const char *name, uint32_t length, uint32_t *graph);
IMPORT("init_execution_context") uint32_t nn_init_execution_context(uint32_t graph, uint32_t *context);
IMPORT("set_input") uint32_t nn_set_input(uint32_t context, uint32_t index, const tensor *input);
IMPORT("compute") uint32_t nn_compute(uint32_t context);
IMPORT("get_output")
uint32_t nn_get_output(uint32_t context, uint32_t index, void *buffer, uint32_t room, uint32_t *bytes);

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(EXIT_FAILURE);
}

/* Ends the program with the name of the error, unless there is none. */
static void check(const char *what, uint32_t error) {
    static const char *const names[] = {"success", "invalid argument", "invalid encoding", "missing memory", "busy",
                                        "runtime error", "unsupported operation", "too large", "not found"};
    if (error != SUCCESS) {
        fail(what, error < sizeof names / sizeof *names ? names[error] : "unknown error");
    }
}

static void *allocated(void *memory) {
    if (!memory) {
        fail("gpt2", "out of memory");
    }
    return memory;
}

/* The tokenizer: a header of 256 int32, then each token's length and bytes -------------------------------------------- */

enum { TOKENS_MAX = 1 << 20, HEADER = 256, TOKENIZER = 20240328, GPT2_END_OF_TEXT = 50256 };

typedef struct {
    uint8_t *bytes, **tokens;
    int32_t count, end_of_text;
} tokenizer;

static tokenizer load_tokenizer(const char *path) {
    int32_t header[HEADER];
    tokenizer t;
    FILE *file = fopen(path, "rb");
    if (!file) {
        fail(path, "the file cannot be opened");
    }
    if (fread(header, sizeof *header, HEADER, file) != HEADER || header[0] != TOKENIZER || header[2] < 1) {
        fail(path, "it holds no tokenizer of llm.c");
    }
    t.count = header[2];
    t.end_of_text = header[1] == 1 ? GPT2_END_OF_TEXT : header[3];
    fseek(file, 0, SEEK_END);
    long size = ftell(file) - (long)sizeof header;
    fseek(file, sizeof header, SEEK_SET);
    if (size < t.count) {
        fail(path, "it is cut off");
    }
    t.bytes = allocated(malloc((size_t)size));
    t.tokens = allocated(calloc((size_t)t.count, sizeof *t.tokens));
    if (fread(t.bytes, 1, (size_t)size, file) != (size_t)size) {
        fail(path, "it cannot be read");
    }
    fclose(file);
    long at = 0;
    for (int32_t token = 0; token < t.count; token++) {
        t.tokens[token] = t.bytes + at;
        if (at >= size || t.bytes[at] == 0 || (at += 1 + t.bytes[at]) > size) {
            fail(path, "it is cut off");
        }
    }
    return t;
}

/* Returns the longest token that `text` begins with, or -1: the first one, if several have the same bytes. */
static int32_t longest_token(const tokenizer *t, const char *text) {
    size_t left = strlen(text), longest = 0;
    int32_t found = -1;
    for (int32_t token = 0; token < t->count; token++) {
        size_t size = *t->tokens[token];
        if (size > longest && size <= left && !memcmp(t->tokens[token] + 1, text, size)) {
            longest = size;
            found = token;
        }
    }
    return found;
}

static void print_token(const tokenizer *t, int32_t token) {
    if (token >= t->count) {
        fail("gpt2", "the model made a token that the tokenizer has not");
    }
    fwrite(t->tokens[token] + 1, 1, *t->tokens[token], stdout);
    fflush(stdout);
}

/* Random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011), with the counters of `gt.rand` ---------------------- */

/* The only number, from 0 to 1, of the draw number `draw` from a seed. */
static float uniform(uint64_t seed, uint64_t draw) {
    uint32_t c[4] = {0, 0, (uint32_t)draw, (uint32_t)(draw >> 32)};
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c[0], b = 0xCD9E8D57ull * c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ key[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ c[3] ^ key[1], (uint32_t)a};
        memcpy(c, next, sizeof c);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return (float)(c[0] >> 8) / (1 << 24);
}

/* Sampling ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    double temperature, top_p;
    int32_t top_k, count;
    uint64_t seed, draws;
} settings;

typedef struct {
    float probability;
    int32_t token;
} candidate;

/* The most likely first; of equally likely ones, the lower token. */
static int by_probability(const void *one, const void *other) {
    const candidate *a = one, *b = other;
    if (a->probability != b->probability) {
        return a->probability < b->probability ? 1 : -1;
    }
    return a->token < b->token ? -1 : 1;
}

/* Draws a token: of the `top_k` most likely, and of the most likely whose probability reaches `top_p` (Holtzman et al.
 * 2020). A temperature of 0 takes the most likely. */
static int32_t choose(const float *logits, int32_t count, settings *s, candidate *candidates) {
    int32_t best = 0;
    for (int32_t token = 1; token < count; token++) {
        best = logits[token] > logits[best] ? token : best;
    }
    if (s->temperature == 0) {
        return best;
    }
    double sum = 0, before = 0, kept = 0;
    for (int32_t token = 0; token < count; token++) {
        sum += exp((logits[token] - logits[best]) / s->temperature);
    }
    for (int32_t token = 0; token < count; token++) {
        candidates[token].probability = (float)(exp((logits[token] - logits[best]) / s->temperature) / sum);
        candidates[token].token = token;
    }
    if (s->top_k || s->top_p < 1) {
        qsort(candidates, (size_t)count, sizeof *candidates, by_probability);
        int32_t limit = s->top_k && s->top_k < count ? s->top_k : count, likely = 0;
        while (likely < limit && before < s->top_p) {
            before += candidates[likely++].probability;
        }
        count = likely;
    }
    for (int32_t i = 0; i < count; i++) {
        kept += candidates[i].probability;
    }
    double drawn = uniform(s->seed, s->draws++) * kept, reached = 0;
    for (int32_t i = 0; i < count; i++) {
        reached += candidates[i].probability;
        if (reached > drawn) {
            return candidates[i].token;
        }
    }
    return candidates[count - 1].token;
}

/* The program ------------------------------------------------------------------------------------------------------- */

static const char USAGE[] =
    "usage: gpt2 GRAPH TOKENIZER PROMPT [-n TOKENS] [-t TEMPERATURE] [-k TOP_K] [-p TOP_P] [-s SEED]\n";

/* Returns a number of the command line; ends the program if it is none from `low` to `high`. */
static double number(const char *text, double low, double high) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "gpt2: %s is no number from %g to %g\n%s", text, low, high, USAGE);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv) {
    settings s = {.temperature = 1, .top_p = 1, .top_k = 0, .count = 64, .seed = 0};
    if (argc < 4) {
        fputs(USAGE, stderr);
        return 2;
    }
    if (getentropy(&s.seed, sizeof s.seed)) {
        fail("gpt2", "the host has no random numbers");
    }
    for (int i = 4; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "-n")) {
            s.count = (int32_t)number(value, 1, TOKENS_MAX);
        } else if (!strcmp(argv[i], "-t")) {
            s.temperature = number(value, 0, 1e6);
        } else if (!strcmp(argv[i], "-k")) {
            s.top_k = (int32_t)number(value, 1, INT32_MAX);
        } else if (!strcmp(argv[i], "-p")) {
            s.top_p = number(value, 1e-9, 1);
        } else if (!strcmp(argv[i], "-s")) {
            s.seed = (uint64_t)number(value, 0, 9007199254740992.0);
        } else {
            fputs(USAGE, stderr);
            return 2;
        }
    }

    tokenizer t = load_tokenizer(argv[2]);
    uint32_t graph, context, length = 0, bytes, room = 1 << 16;
    check(argv[1], nn_load_by_name(argv[1], (uint32_t)strlen(argv[1]), &graph));
    check("init_execution_context", nn_init_execution_context(graph, &context));

    int32_t *tokens = allocated(malloc((strlen(argv[3]) + 1 + (size_t)s.count) * sizeof *tokens));
    for (const char *rest = argv[3]; *rest; rest += *t.tokens[tokens[length - 1]]) {
        if ((tokens[length++] = longest_token(&t, rest)) < 0) {
            fail("gpt2", "no token begins as the prompt goes on");
        }
    }
    if (length == 0) {
        tokens[length++] = t.end_of_text;
    }
    fputs(argv[3], stdout);

    float *logits = allocated(malloc(room));
    candidate *candidates = NULL;
    for (int32_t made = 0, left = 1; made < s.count && left > 0; made++) {
        uint32_t error;
        tensor input = {&length, 1, TYPE_I32, tokens, length * (uint32_t)sizeof *tokens};
        check("set_input", nn_set_input(context, 0, &input));
        check("compute", nn_compute(context));
        while ((error = nn_get_output(context, 0, logits, room, &bytes)) == TOO_LARGE) {
            room *= 2;
            logits = allocated(realloc(logits, room));
        }
        check("get_output", error);
        if (!candidates) {
            candidates = allocated(malloc(bytes / sizeof *logits * sizeof *candidates));
        }
        int32_t token = choose(logits, (int32_t)(bytes / sizeof *logits), &s, candidates);
        print_token(&t, token);
        tokens[length++] = token;
        check("get_output", nn_get_output(context, 1, &left, sizeof left, &bytes));
    }
    putchar('\n');
    return EXIT_SUCCESS;
}
