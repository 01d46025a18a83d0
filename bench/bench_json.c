/*
 * bench_json.c - reading and writing a large dump.json, and floats as text.
 *
 *   bench_json                    on 100 MB made in memory
 *   bench_json FILE               on a file (bench_json.py, which adds Python's json.load)
 *   bench_json --write FILE MB    only make such a file
 *
 * One figure per line: name, value, unit, what it is compared with. Minimum of several runs; processor time, so that a
 * busy machine does not decide.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/file.h"
#include "text/json.h"

enum { REPEATS = 5, DOUBLES = 1 << 17 };

static double
now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t
next_random(void)
{
    static uint64_t s = 88172645463325252ULL;

    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

/* A statistic as dumps have them: a float32 value of moderate size, written with a double's digits. */
static double
statistic(void)
{
    return (double)(float)((double)(int64_t)next_random() / 4.6e18 * pow(10, (double)(next_random() % 6) - 2));
}

static void
write_tensor(msp_json_writer *w)
{
    static const char *const names[] = {"Max", "Min", "Mean", "Norm"};

    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("type"));
    msp_json_write_string(w, MSP_STR("torch.Tensor"));
    msp_json_write_key(w, MSP_STR("dtype"));
    msp_json_write_string(w, MSP_STR("torch.bfloat16"));
    msp_json_write_key(w, MSP_STR("shape"));
    msp_json_begin_array(w);
    for (uint64_t n = 1 + next_random() % 4; n > 0; n--)
        msp_json_write_i64(w, 1LL << next_random() % 13);
    msp_json_end_array(w);
    for (size_t i = 0; i < 4; i++) {
        msp_json_write_key(w, msp_str_of(names[i]));
        msp_json_write_f64(w, statistic());
    }
    msp_json_write_key(w, MSP_STR("requires_grad"));
    msp_json_write_bool(w, next_random() % 2);
    msp_json_end_object(w);
}

static void
write_list(msp_json_writer *w, const char *key, uint64_t n)
{
    msp_json_write_key(w, msp_str_of(key));
    msp_json_begin_array(w);
    for (; n > 0; n--)
        write_tensor(w);
    msp_json_end_array(w);
}

/* A dump.json of about size bytes, as the collector writes it. */
static void
make_dump(msp_buf *out, size_t size)
{
    static const char *const apis[] = {"Functional.linear", "Torch.matmul", "Tensor.__add__", "NPU.npu_rms_norm"};
    msp_json_writer w;
    char name[64];

    msp_json_writer_init(&w, out, 1);
    msp_json_begin_object(&w);
    msp_json_write_key(&w, MSP_STR("task"));
    msp_json_write_string(&w, MSP_STR("statistics"));
    msp_json_write_key(&w, MSP_STR("dump_data_dir"));
    msp_json_write_null(&w);
    msp_json_write_key(&w, MSP_STR("data"));
    msp_json_begin_object(&w);
    for (unsigned i = 0; out->len < size && !out->failed; i++) {
        snprintf(name, sizeof(name), "%s.%u.%s", apis[i % 4], i / 8, i / 4 % 2 ? "backward" : "forward");
        msp_json_write_key(&w, msp_str_of(name));
        msp_json_begin_object(&w);
        write_list(&w, i / 4 % 2 ? "input" : "input_args", 1 + next_random() % 3);
        if (i / 4 % 2 == 0) {
            msp_json_write_key(&w, MSP_STR("input_kwargs"));
            msp_json_begin_object(&w);
            msp_json_end_object(&w);
        }
        write_list(&w, "output", 1);
        msp_json_end_object(&w);
    }
    msp_json_end_object(&w);
    msp_json_end_object(&w);
    if (out->failed) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
}

/* VmHWM, not getrusage(): that one remembers what the process was before exec. */
static long
peak_kib(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long kib = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        sscanf(line, "VmHWM: %ld", &kib);
    if (f != NULL)
        fclose(f);
    return kib;
}

static void
bench_read(msp_str text)
{
    double best = 1e9, started;
    size_t tree = 0;
    long before = peak_kib(), grown = 0;
    msp_error err;
    msp_json_doc doc;

    for (int i = 0; i < REPEATS; i++) {
        started = now();
        if (msp_json_parse(&doc, text.p, text.len, &err) != MSP_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        if (now() - started < best)
            best = now() - started;
        tree = doc.arena.reserved;
        if (i == 0)
            grown = peak_kib() - before;
        msp_json_doc_release(&doc);
    }
    printf("json.read            %8.0f MB/s\n", (double)text.len / best / 1e6);
    printf("json.read.seconds    %8.4f s\n", best);
    printf("json.tree            %8.2f bytes per byte of text\n", (double)tree / (double)text.len);
    printf(
        "json.peak            %8.2f bytes per byte of text while reading (resident; a mapped text's pages count too)\n",
        (double)grown * 1024 / (double)text.len);
}

static void
bench_write(msp_str text)
{
    double best = 1e9, started;
    msp_json_writer w;
    msp_json_doc doc;
    msp_buf out = {0};

    if (msp_json_parse(&doc, text.p, text.len, NULL) != MSP_OK)
        exit(1);
    for (int i = 0; i < 3; i++) {
        msp_buf_clear(&out);
        started = now();
        msp_json_writer_init(&w, &out, 1);
        msp_json_write_value(&w, doc.root);
        if (now() - started < best)
            best = now() - started;
    }
    if (out.len != text.len || memcmp(out.p, text.p, text.len) != 0) {
        fprintf(stderr, "what was read is not what was written\n");
        exit(1);
    }
    printf("json.write           %8.0f MB/s\n", (double)text.len / best / 1e6);
    msp_buf_release(&out);
    msp_json_doc_release(&doc);
}

/* The plain way to the shortest digits. */
static size_t
repr_by_snprintf(char *buf, double v)
{
    int n = 0;

    for (int digits = 15; digits <= 17; digits++) {
        n = snprintf(buf, 32, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    return (size_t)n;
}

static double
time_print(size_t (*print)(char *, double), const double *values, char (*texts)[32])
{
    double best = 1e9, started;

    for (int r = 0; r < REPEATS; r++) {
        started = now();
        for (int i = 0; i < DOUBLES; i++)
            print(texts[i], values[i]);
        if (now() - started < best)
            best = now() - started;
    }
    return best / DOUBLES * 1e9;
}

static double
by_strtod(msp_str s)
{
    return strtod(s.p, NULL);
}

static double
by_parse(msp_str s)
{
    double v = 0;

    return msp_f64_parse(s, &v) ? v : NAN;
}

static double
time_parse(double (*parse)(msp_str), char (*texts)[32], const double *expected)
{
    double best = 1e9, started;
    int wrong = 0;

    for (int r = 0; r < REPEATS; r++) {
        started = now();
        for (int i = 0; i < DOUBLES; i++)
            wrong += parse(msp_str_of(texts[i])) != expected[i];
        if (now() - started < best)
            best = now() - started;
    }
    if (wrong > 0) {
        fprintf(stderr, "%d numbers were read wrongly\n", wrong);
        exit(1);
    }
    return best / DOUBLES * 1e9;
}

static void
bench_numbers(const char *kind, double (*make)(void))
{
    double *values = msp_alloc(DOUBLES, sizeof(*values)), ours, theirs;
    char(*texts)[32] = msp_alloc(DOUBLES, sizeof(*texts));

    for (int i = 0; i < DOUBLES; i++)
        values[i] = make();
    theirs = time_print(repr_by_snprintf, values, texts);
    ours = time_print(msp_f64_repr, values, texts);
    printf("repr.%-8s        %8.1f ns, snprintf until it reads back %.1f ns: %.1fx\n", kind, ours, theirs,
           theirs / ours);
    theirs = time_parse(by_strtod, texts, values);
    ours = time_parse(by_parse, texts, values);
    printf("parse.%-8s       %8.1f ns, strtod %.1f ns: %.1fx\n", kind, ours, theirs, theirs / ours);
    msp_free(values);
    msp_free(texts);
}

static double
any_double(void)
{
    uint64_t bits;
    double v;

    do {
        bits = next_random();
        memcpy(&v, &bits, sizeof(v));
    } while (!isfinite(v));
    return v;
}

static int
write_dump(const char *path, size_t size)
{
    msp_buf text = {0};
    FILE *f = fopen(path, "wb");

    make_dump(&text, size);
    if (f == NULL || fwrite(text.p, 1, text.len, f) != text.len || fclose(f) != 0) {
        perror(path);
        return 1;
    }
    msp_buf_release(&text);
    return 0;
}

int
main(int argc, char **argv)
{
    msp_mapping map = {0};
    msp_buf made = {0};
    msp_error err;

    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return write_dump(argv[2], (size_t)atol(argv[3]) * 1000000);
    if (argc > 1) {
        if (msp_map_open(&map, argv[1], &err) != MSP_OK) {
            fprintf(stderr, "%s\n", err.message);
            return 1;
        }
        bench_read((msp_str){map.addr, map.size});
        bench_write((msp_str){map.addr, map.size});
        msp_map_close(&map);
    } else {
        make_dump(&made, 100000000);
        bench_read(msp_buf_view(&made));
        bench_write(msp_buf_view(&made));
        msp_buf_release(&made);
    }
    bench_numbers("float32", statistic);
    bench_numbers("float64", any_double);
    return 0;
}
