/*
 * bench_compare.c - the pieces that bench_compare.py puts together: make dumps, compare them, and the baselines.
 *
 *     make-statistics APIS DIR         dumps of that many calls, ten rows each, in DIR/npu and DIR/bench
 *     make-tensors COUNT BYTES DIR     real-data dumps of that many tensors of so many bytes each
 *     json FILE...                     seconds to parse the files
 *     read THREADS FILE...             seconds to read every byte of the files, mapped, in plain loops
 *     xlsx CSV OUT                     seconds that libxlsxwriter alone needs for the sheet in CSV
 *     run NPU BENCH OUT FORMATS THREADS [fuzzy | mapping=YAML]
 *                                      seconds to compare, rows, the most memory that the process had (MiB), the
 *                                      most of its own, without mapped files (MiB), and the result's path
 *
 * Each prints one line. Times are of one run: who calls takes the best of several.
 */
#include <sys/resource.h>
#include <xlsxwriter.h>
#include "bench.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "text/json.h"
#include "msprobe/compare.h"

static int
fail(const msp_error *err)
{
    fprintf(stderr, "bench_compare: %s\n", err->message);
    return 1;
}

/* ---- dumps ------------------------------------------------------------------------------------------------------- */

static uint32_t seed = 1;

/* A float of the size that activations have; same numbers in every run. */
static double
next_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)((float)seed / 4294967296.0f * 6.0f - 3.0f);
}

static void
write_leaf(msp_json_writer *w, const char *file, int64_t numel, double shift)
{
    static const char *const names[] = {"Max", "Min", "Mean", "Norm"};

    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("type"));
    msp_json_write_string(w, MSP_STR("torch.Tensor"));
    msp_json_write_key(w, MSP_STR("dtype"));
    msp_json_write_string(w, MSP_STR("torch.float32"));
    msp_json_write_key(w, MSP_STR("shape"));
    msp_json_begin_array(w);
    msp_json_write_i64(w, numel);
    msp_json_end_array(w);
    for (int i = 0; i < 4; i++) {
        msp_json_write_key(w, msp_str_of(names[i]));
        msp_json_write_f64(w, next_value() + shift);
    }
    msp_json_write_key(w, MSP_STR("requires_grad"));
    msp_json_write_bool(w, seed % 2 == 0);
    if (file != NULL) {
        msp_json_write_key(w, MSP_STR("data_name"));
        msp_json_write_string(w, msp_str_of(file));
    }
    msp_json_end_object(w);
}

static void
write_scalar(msp_json_writer *w, const char *type, int64_t value)
{
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("type"));
    msp_json_write_string(w, msp_str_of(type));
    msp_json_write_key(w, MSP_STR("value"));
    msp_json_write_i64(w, value);
    msp_json_end_object(w);
}

/* Seven inputs, two of them plain numbers, one keyword and two outputs; every seventh call is off by a little. */
static void
write_call(msp_json_writer *w, size_t i, bool npu)
{
    char name[64];

    snprintf(name, sizeof(name), "Functional.op%zu.%zu.forward", i % 50, i / 50);
    msp_json_write_key(w, msp_str_of(name));
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("input_args"));
    msp_json_begin_array(w);
    for (int k = 0; k < 5; k++)
        write_leaf(w, NULL, 768 << k, 0);
    write_scalar(w, "int", (int64_t)(i % 9));
    write_scalar(w, "int", 1);
    msp_json_end_array(w);
    msp_json_write_key(w, MSP_STR("input_kwargs"));
    msp_json_begin_object(w);
    msp_json_write_key(w, MSP_STR("dim"));
    write_scalar(w, "int", -1);
    msp_json_end_object(w);
    msp_json_write_key(w, MSP_STR("output"));
    msp_json_begin_array(w);
    write_leaf(w, NULL, 768, npu && i % 7 == 0 ? 1e-3 : 0);
    write_leaf(w, NULL, 768, 0);
    msp_json_end_array(w);
    msp_json_end_object(w);
}

typedef struct dump_file {
    msp_file file;
    msp_buf text;
    msp_json_writer json;
} dump_file;

static msp_status
flush(dump_file *d, size_t least, msp_error *err)
{
    msp_status st = MSP_OK;

    if (d->text.len >= least) {
        st = msp_file_write(&d->file, d->text.p, d->text.len, err);
        msp_buf_clear(&d->text);
    }
    return st;
}

static msp_status
begin_dump(dump_file *d, const char *dir, const char *side, const char *task, msp_error *err)
{
    msp_buf path = {0};
    msp_status st;

    *d = (dump_file){.file = MSP_FILE_NONE};
    msp_buf_printf(&path, "%s/%s/dump_tensor_data", dir, side);
    st = msp_path_make_dirs(path.p, err);
    msp_buf_clear(&path);
    msp_buf_printf(&path, "%s/%s/dump.json", dir, side);
    if (st == MSP_OK)
        st = msp_file_create(&d->file, path.p, 0640, err);
    msp_buf_release(&path);
    msp_json_writer_init(&d->json, &d->text, 1);
    msp_json_begin_object(&d->json);
    msp_json_write_key(&d->json, MSP_STR("task"));
    msp_json_write_string(&d->json, msp_str_of(task));
    msp_json_write_key(&d->json, MSP_STR("framework"));
    msp_json_write_string(&d->json, MSP_STR("pytorch"));
    msp_json_write_key(&d->json, MSP_STR("data"));
    msp_json_begin_object(&d->json);
    return st;
}

static msp_status
end_dump(dump_file *d, msp_error *err)
{
    msp_status st;

    msp_json_end_object(&d->json);
    msp_json_end_object(&d->json);
    st = flush(d, 0, err);
    if (st == MSP_OK)
        st = msp_file_commit(&d->file, err);
    msp_buf_release(&d->text);
    return st;
}

static int
make_statistics(size_t apis, const char *dir)
{
    static const char *const sides[] = {"npu", "bench"};
    msp_status st = MSP_OK;
    msp_error err;

    for (int s = 0; s < 2 && st == MSP_OK; s++) {
        dump_file d;

        seed = 1;
        st = begin_dump(&d, dir, sides[s], "statistics", &err);
        for (size_t i = 0; i < apis && st == MSP_OK; i++) {
            write_call(&d.json, i, s == 0);
            st = flush(&d, 1 << 20, &err);
        }
        if (st == MSP_OK)
            st = end_dump(&d, &err);
    }
    return st == MSP_OK ? 0 : fail(&err);
}

static msp_status
save_tensor(const char *dir, const char *side, const char *name, float *values, int64_t numel, msp_error *err)
{
    msp_buf path = {0};
    msp_tensor t;
    msp_status st;

    for (int64_t i = 0; i < numel; i++)
        values[i] = (float)next_value();
    msp_buf_printf(&path, "%s/%s/dump_tensor_data/%s", dir, side, name);
    st = msp_tensor_view(&t, values, MSP_F32, 1, &numel, err);
    if (st == MSP_OK)
        st = msp_pt_save(path.p, &t, err);
    msp_buf_release(&path);
    return st;
}

static int
make_tensors(size_t count, int64_t bytes, const char *dir)
{
    static const char *const sides[] = {"npu", "bench"};
    int64_t numel = bytes / (int64_t)sizeof(float);
    float *values = malloc((size_t)bytes);
    msp_status st = values == NULL ? MSP_E_NOMEM : MSP_OK;
    msp_error err = {MSP_E_NOMEM, "out of memory"};

    for (int s = 0; s < 2 && st == MSP_OK; s++) {
        dump_file d;

        seed = 7;
        st = begin_dump(&d, dir, sides[s], "tensor", &err);
        for (size_t i = 0; i < count && st == MSP_OK; i++) {
            char name[64];

            snprintf(name, sizeof(name), "Functional.op%zu.%zu.forward", i % 50, i / 50);
            msp_json_write_key(&d.json, msp_str_of(name));
            msp_json_begin_object(&d.json);
            msp_json_write_key(&d.json, MSP_STR("output"));
            msp_json_begin_array(&d.json);
            strcat(name, ".output.0.pt");
            write_leaf(&d.json, name, numel, 0);
            msp_json_end_array(&d.json);
            msp_json_end_object(&d.json);
            st = flush(&d, 1 << 20, &err);
            if (st == MSP_OK)
                st = save_tensor(dir, sides[s], name, values, numel, &err);
        }
        if (st == MSP_OK)
            st = end_dump(&d, &err);
    }
    free(values);
    return st == MSP_OK ? 0 : fail(&err);
}

/* ---- baselines --------------------------------------------------------------------------------------------------- */

static int
parse_json(char **paths, int n)
{
    double start = bench_now(), seconds;
    msp_json_doc doc;
    msp_mapping map;
    msp_error err;

    for (int i = 0; i < n; i++) {
        if (msp_map_open(&map, paths[i], &err) != MSP_OK || msp_json_parse(&doc, map.addr, map.size, &err) != MSP_OK)
            return fail(&err);
        bench_keep(doc.root);
        msp_json_doc_release(&doc);
        msp_map_close(&map);
    }
    seconds = bench_now() - start;
    printf("%.6f\n", seconds);
    return 0;
}

static int
read_files(int threads, char **paths, int n)
{
    double start = bench_now();
    msp_mapping map;
    msp_error err;

    for (int i = 0; i < n; i++) {
        if (msp_map_open(&map, paths[i], &err) != MSP_OK)
            return fail(&err);
        bench_read_mt(map.addr, map.size, threads);
        msp_map_close(&map);
    }
    printf("%.6f\n", bench_now() - start);
    return 0;
}

/* ---- libxlsxwriter alone ----------------------------------------------------------------------------------------- */

static bool
is_number(const char *text, double *out)
{
    char *end;

    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

/* The next cell of a line, unquoted in place; *at goes behind its comma, or becomes NULL. */
static char *
next_cell(char **at)
{
    char *start = *at, *from = start, *to = start;
    bool quoted = *from == '"';

    from += quoted;
    for (; *from != '\0' && (quoted || *from != ','); from++) {
        if (quoted && *from == '"' && *++from != '"')
            break;
        *to++ = *from;
    }
    *at = *from == ',' ? from + 1 : NULL;
    *to = '\0';
    return start;
}

static int
write_xlsx(const char *csv, const char *path)
{
    lxw_workbook_options options = {.constant_memory = LXW_TRUE};
    double start = bench_now(), parsing = 0;
    lxw_workbook *book = workbook_new_opt(path, &options);
    lxw_worksheet *sheet = workbook_add_worksheet(book, "Sheet1");
    FILE *in = fopen(csv, "r");
    static char line[1 << 20];
    char *cells[64];

    if (in == NULL)
        return 1;
    for (lxw_row_t row = 0; row < 1048576; row++) {
        double t = bench_now();
        size_t n = 0;
        char *at = line;

        if (fgets(line, sizeof(line), in) == NULL)
            break;
        line[strcspn(line, "\n")] = '\0';
        while (at != NULL && n < 64)
            cells[n++] = next_cell(&at);
        parsing += bench_now() - t;
        for (size_t k = 0; k < n; k++) {
            double number;

            if (is_number(cells[k], &number))
                worksheet_write_number(sheet, row, (lxw_col_t)k, number, NULL);
            else
                worksheet_write_string(sheet, row, (lxw_col_t)k, cells[k], NULL);
        }
    }
    fclose(in);
    workbook_close(book);
    printf("%.6f\n", bench_now() - start - parsing);
    return 0;
}

/* ---- the comparison itself --------------------------------------------------------------------------------------- */

/* Memory of our own at this moment, in MiB. */
static double
own_memory(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kb = 0;

    while (f != NULL && fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "RssAnon: %lf", &kb) == 1)
            break;
    if (f != NULL)
        fclose(f);
    return kb / 1024;
}

static bool
watch_memory(const msp_compare_progress *p, void *payload)
{
    double *most = payload, now = own_memory();

    (void)p;
    *most = now > *most ? now : *most;
    return true;
}

static int
run_compare(char **args, int n)
{
    msp_compare_options opt;
    msp_compare_result res;
    struct rusage usage;
    double most = 0;
    msp_error err;
    msp_status st;

    msp_compare_options_init(&opt);
    opt.progress = watch_memory;
    opt.progress_payload = &most;
    opt.npu_path = args[0];
    opt.bench_path = args[1];
    opt.output_dir = args[2];
    opt.formats = (strstr(args[3], "xlsx") != NULL ? MSP_COMPARE_XLSX : 0) |
                  (strstr(args[3], "csv") != NULL ? MSP_COMPARE_CSV : 0);
    opt.threads = atoi(args[4]);
    opt.compare_only = true;
    for (int i = 5; i < n; i++) {
        opt.fuzzy |= strcmp(args[i], "fuzzy") == 0;
        if (strncmp(args[i], "mapping=", 8) == 0)
            opt.data_mapping = args[i] + 8;
    }
    st = msp_compare_run(&res, &opt, &err);
    if (st != MSP_OK)
        return fail(&err);
    getrusage(RUSAGE_SELF, &usage);
    printf("%.6f %" PRId64 " %.1f %.1f %s\n", res.seconds, res.pairs[0].counts.rows, (double)usage.ru_maxrss / 1024,
           most, res.pairs[0].files[0]);
    msp_compare_result_release(&res);
    return 0;
}

int
main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "make-statistics") == 0 && argc == 4)
        return make_statistics(strtoul(argv[2], NULL, 10), argv[3]);
    if (strcmp(what, "make-tensors") == 0 && argc == 5)
        return make_tensors(strtoul(argv[2], NULL, 10), strtoll(argv[3], NULL, 10), argv[4]);
    if (strcmp(what, "json") == 0 && argc > 2)
        return parse_json(argv + 2, argc - 2);
    if (strcmp(what, "read") == 0 && argc > 3)
        return read_files(atoi(argv[2]), argv + 3, argc - 3);
    if (strcmp(what, "xlsx") == 0 && argc == 4)
        return write_xlsx(argv[2], argv[3]);
    if (strcmp(what, "run") == 0 && argc > 6)
        return run_compare(argv + 2, argc - 2);
    fprintf(stderr, "usage: see the head of bench_compare.c; bench_compare.py runs it\n");
    return 2;
}
