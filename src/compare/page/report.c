/* report.c - see msprobe/report.h. A table's rows go the way of a comparison's: cell by cell into a part of a page. */
#include "msprobe/report.h"

#include <sys/stat.h>
#include "compare/page/page_run.h"
#include "compare/page/report_verdict.h"
#include "compare/explain/answer.h"
#include "compare/run/run.h"
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "report/read/table_read.h"

enum { MAX_COLUMNS = 64, MAX_FRAMES = 64 };

/* ---- which tables ------------------------------------------------------------------------------------------------ */

static bool
has_ext(msp_str name, const char *ext)
{
    return msp_str_ends(name, msp_str_of(ext));
}

static bool
is_table(msp_str name)
{
    return msp_str_starts(name, MSP_STR("compare_result_")) &&
           (has_ext(name, ".xlsx") || has_ext(name, ".csv") || has_ext(name, ".json"));
}

static msp_str
stem_of(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path, *dot = strrchr(name, '.');

    return (msp_str){name, dot != NULL ? (size_t)(dot - name) : strlen(name)};
}

/* The time in a name's end: "compare_result_rank0_20261118171041.xlsx"; empty where there is none. */
static msp_str
stamp_of(const char *path)
{
    msp_str s = stem_of(path);
    unsigned long long unused;

    if (s.len < 15 || s.p[s.len - 15] != '_' || !msp_str_to_u64((msp_str){s.p + s.len - 14, 14}, &unused))
        return (msp_str){"", 0};
    return (msp_str){s.p + s.len - 14, 14};
}

/* "rank0" of "compare_result_rank0_20261118171041.xlsx". */
static msp_str
label_of(const char *path)
{
    msp_str s = stem_of(path), prefix = MSP_STR("compare_result_");

    s.len -= stamp_of(path).len > 0 ? 15 : 0;
    if (msp_str_starts(s, prefix))
        s = (msp_str){s.p + prefix.len, s.len - prefix.len};
    return s;
}

/* Of the tables in a folder, in the order of their names, those of the newest comparison, each in one format. */
static void
keep_newest(char **tables, size_t *n)
{
    msp_str newest = {"", 0};
    size_t kept = 0;

    for (size_t i = 0; i < *n; i++)
        if (msp_str_cmp(stamp_of(tables[i]), newest) > 0)
            newest = stamp_of(tables[i]);
    for (size_t i = 0; i < *n; i++) {
        msp_str before = kept > 0 ? stem_of(tables[kept - 1]) : (msp_str){"", 0};

        if (msp_str_eq(stamp_of(tables[i]), newest) && !msp_str_eq(stem_of(tables[i]), before)) {
            char *swap = tables[kept];

            tables[kept++] = tables[i];
            tables[i] = swap;
        }
    }
    for (size_t i = kept; i < *n; i++)
        msp_free(tables[i]);
    *n = kept;
}

static msp_status
find_tables(char ***out, size_t *n, const char *dir, msp_error *err)
{
    msp_dir_list names;
    msp_status st = msp_dir_list_read(&names, dir, err);

    if (st != MSP_OK)
        return st;
    for (size_t i = 0; i < names.count && st == MSP_OK; i++) {
        char *path;

        if (!is_table(msp_str_of(names.names[i])))
            continue;
        path = msp_path_join(dir, names.names[i]);
        if (path == NULL || !msp_result_add(out, n, msp_str_of(path)))
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
        msp_free(path);
    }
    msp_dir_list_release(&names);
    if (st == MSP_OK && *n == 0)
        st = msp_error_set(err, MSP_E_NOT_FOUND,
                           "%s: holds no compare_result_*.xlsx, .csv or .json, which msprobe compare writes", dir);
    if (st == MSP_OK)
        keep_newest(*out, n);
    return st;
}

/* ---- one table --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    const char *path;
    const char *page;
    int64_t max_rows;
    msp_page_part *part;
    msp_compare_pair *out;
    msp_stack *stack;
    size_t ncolumns;
    int name, bench, verdict, npu_stack, message, dtype, shape; /* columns, -1: none */
    msp_report_verdict told;                                    /* by compare, beside the rows */
    msp_buf stack_text; /* of the newest call: it stands in the first row only */
    msp_error no_page;  /* why the page cannot be written: that is not the table's fault */
} reader;

static msp_str
cell_text(const msp_cell *cells, int column)
{
    return column < 0 || cells[column].kind != MSP_CELL_TEXT
               ? (msp_str){"", 0}
               : (msp_str){cells[column].as.text.p, cells[column].as.text.len};
}

static int
column_of(const msp_column *columns, size_t n, const char *title)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(columns[i].title, title) == 0)
            return (int)i;
    return -1;
}

static msp_status
read_header(const msp_cell *cells, size_t count, void *payload, msp_error *err)
{
    reader *r = payload;
    msp_column columns[MAX_COLUMNS];
    char *titles[MAX_COLUMNS] = {0};
    msp_status st = MSP_OK;

    r->ncolumns = count < MAX_COLUMNS ? count : MAX_COLUMNS;
    for (size_t i = 0; i < r->ncolumns; i++) {
        titles[i] = msp_result_text(cell_text(cells, (int)i));
        columns[i] = (msp_column){titles[i], 0};
        if (titles[i] == NULL)
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    }
    if (st == MSP_OK) {
        r->name = column_of(columns, r->ncolumns, "NPU Name");
        r->bench = column_of(columns, r->ncolumns, "Bench Name");
        r->verdict = column_of(columns, r->ncolumns, "Accuracy Reached or Not");
        if (r->verdict < 0)
            r->verdict = column_of(columns, r->ncolumns, "Result");
        r->npu_stack = column_of(columns, r->ncolumns, "NPU_Stack_Info");
        r->message = column_of(columns, r->ncolumns, "Err_message");
        r->dtype = column_of(columns, r->ncolumns, "NPU Dtype");
        r->shape = column_of(columns, r->ncolumns, "NPU Tensor Shape");
        r->out->mode = column_of(columns, r->ncolumns, "NPU MD5") >= 0    ? MSP_MODE_MD5
                       : column_of(columns, r->ncolumns, "Max diff") >= 0 ? MSP_MODE_STATISTICS
                                                                          : MSP_MODE_REAL;
        st = r->name < 0 || r->bench < 0
                 ? msp_error_set(err, MSP_E_FORMAT, "no result of a comparison: there is no column \"%s\"",
                                 r->name < 0 ? "NPU Name" : "Bench Name")
                 : msp_page_part_open(&r->part, r->page, columns, r->ncolumns, r->max_rows, &r->no_page);
    }
    if (r->no_page.status != MSP_OK)
        msp_error_set(err, st, "%s", r->no_page.message);
    for (size_t i = 0; i < r->ncolumns; i++)
        msp_free(titles[i]);
    return st;
}

/* "Functional.relu.0.forward.output.0" belongs to "Functional.relu.0.forward", "Module.a.A.forward.1.input.0" to
 * "Module.a.A.forward.1": what stands before the last of these words is the call. */
static msp_str
call_of(msp_str name)
{
    static const char *const words[] = {".input", ".output", ".parameters", ".parameters_grad", ".debug"};

    for (size_t i = name.len; i-- > 1;)
        for (size_t k = 0; name.p[i] == '.' && k < sizeof(words) / sizeof(words[0]); k++) {
            msp_str w = msp_str_of(words[k]);

            if (name.len - i >= w.len && memcmp(name.p + i, w.p, w.len) == 0 &&
                (name.len - i == w.len || name.p[i + w.len] == '.'))
                return (msp_str){name.p, i};
        }
    return name;
}

/* The texts of a Python list, as the table shows a stack: ['a', "b"]. They are written into scratch. */
static size_t
parse_frames(msp_str text, msp_buf *scratch, msp_str frames[MAX_FRAMES])
{
    size_t starts[MAX_FRAMES + 1], n = 0, i = 0;

    msp_buf_clear(scratch);
    if (text.len == 0 || text.p[0] != '[')
        return 0;
    while (i < text.len && n < MAX_FRAMES) {
        char quote = text.p[i++];

        if (quote != '\'' && quote != '"')
            continue;
        starts[n++] = scratch->len;
        for (; i < text.len && text.p[i] != quote; i++) {
            char c = text.p[i];

            if (c == '\\' && i + 1 < text.len) {
                c = text.p[++i];
                c = c == 'n' ? '\n' : c == 't' ? '\t' : c;
            }
            msp_buf_char(scratch, c);
        }
        i++;
    }
    starts[n] = scratch->len;
    for (size_t k = 0; k < n && !scratch->failed; k++)
        frames[k] = (msp_str){scratch->p + starts[k], starts[k + 1] - starts[k]};
    return scratch->failed ? 0 : n;
}

static bool
keep_stack(msp_compare_suspect *s, msp_str call, const msp_str *frames, size_t n)
{
    bool ok = true;

    if (s->found && s->nstack == 0 && msp_str_eq(call, msp_str_of(s->api)))
        for (size_t i = 0; i < n && ok; i++)
            ok = msp_result_add(&s->stack, &s->nstack, frames[i]);
    return ok;
}

static msp_status
add_stack(reader *r, msp_str call, msp_error *err)
{
    msp_str frames[MAX_FRAMES];
    msp_buf scratch = {0};
    size_t n = parse_frames(msp_buf_view(&r->stack_text), &scratch, frames);
    int64_t depth = n == 0 ? msp_stack_depth(r->stack, call.p, call.len) : 0;
    msp_status st;

    for (; (int64_t)n < depth && n < MAX_FRAMES; n++)
        frames[n].p = msp_stack_frame(r->stack, call.p, call.len, n, &frames[n].len);
    st = msp_page_part_stack(r->part, frames, n, err);
    if (st == MSP_OK && !keep_stack(&r->out->suspect, call, frames, n))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK && !keep_stack(&r->out->answer.blamed, call, frames, n))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    msp_buf_release(&scratch);
    return st;
}

static bool
describe_suspect(msp_compare_suspect *s, const reader *r, const msp_cell *cells, msp_str name, msp_str call)
{
    bool output = msp_str_starts((msp_str){name.p + call.len, name.len - call.len}, MSP_STR(".output"));

    s->found = true;
    s->row = r->out->counts.rows - 1;
    s->npu_name = msp_result_text(name);
    s->bench_name = msp_result_text(cell_text(cells, r->bench));
    s->api = msp_result_text(call);
    s->verdict = msp_result_text(cell_text(cells, r->verdict));
    s->message = msp_result_text(cell_text(cells, r->message));
    s->dtype[0] = msp_result_text(cell_text(cells, r->dtype));
    s->shape[0] = msp_result_text(cell_text(cells, r->shape));
    s->inputs = output ? MSP_INPUTS_UNKNOWN : MSP_INPUTS_WRONG; /* the table alone does not tell */
    return s->npu_name != NULL && s->bench_name != NULL && s->api != NULL && s->verdict != NULL && s->message != NULL &&
           s->dtype[0] != NULL && s->shape[0] != NULL;
}

static msp_status
read_row(const msp_cell *given, size_t count, void *payload, msp_error *err)
{
    reader *r = payload;
    msp_compare_counts *c = &r->out->counts;
    msp_cell cells[MAX_COLUMNS] = {{MSP_CELL_EMPTY, {{0, 0}}}};
    size_t before = msp_page_part_calls(r->part);
    msp_str name, call, verdict;
    bool wrong, unmatched, blamed;
    msp_status st;

    memcpy(cells, given, (count < r->ncolumns ? count : r->ncolumns) * sizeof(*cells));
    name = cell_text(cells, r->name);
    call = call_of(name);
    verdict = cell_text(cells, r->verdict);
    wrong = msp_str_eq(verdict, MSP_STR("No")) || msp_str_eq(verdict, MSP_STR("Warning")) ||
            msp_str_eq(verdict, MSP_STR("Different"));
    unmatched = msp_str_eq(cell_text(cells, r->bench), MSP_STR("N/A"));
    wrong = wrong && !unmatched;
    c->rows++;
    c->matched += !unmatched;
    c->unmatched += unmatched;
    c->wrong += wrong;
    c->none += msp_str_eq(verdict, MSP_STR("None"));
    st = msp_page_part_row(r->part, call, cells, MSP_ROW_PLAIN, err);
    if (st != MSP_OK)
        return st;
    if (msp_page_part_calls(r->part) > before) {
        msp_buf_clear(&r->stack_text);
        msp_buf_str(&r->stack_text, cell_text(cells, r->npu_stack));
        st = msp_buf_status(&r->stack_text, err);
        if (st == MSP_OK)
            st = add_stack(r, call, err);
    }
    blamed = msp_report_verdict_row(&r->told, name, c->rows - 1) && !r->out->answer.blamed.found;
    wrong = wrong && !r->out->suspect.found;
    if (st == MSP_OK && ((blamed && !describe_suspect(&r->out->answer.blamed, r, cells, name, call)) ||
                         (wrong && !describe_suspect(&r->out->suspect, r, cells, name, call))))
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (st == MSP_OK && (blamed || wrong))
        st = add_stack(r, call, err);
    return st;
}

/* A table that compare wrote as JSON: {"columns": [...], "rows": [[...], ...]}. */
static msp_cell
json_cell(const msp_json *v)
{
    msp_cell c = {MSP_CELL_EMPTY, {{0, 0}}};
    int64_t i;
    double d;

    switch (msp_json_kind_of(v)) {
    case MSP_JSON_STRING:
        return msp_cell_text(msp_json_string(v).p, msp_json_string(v).len);
    case MSP_JSON_TRUE:
        return msp_cell_bool(true);
    case MSP_JSON_FALSE:
        return msp_cell_bool(false);
    default:
        if (msp_json_to_i64(v, &i))
            return msp_cell_int(i);
        return msp_json_to_f64(v, &d) ? msp_cell_float(d) : c;
    }
}

static msp_status
read_json_line(const msp_json *line, msp_table_row_fn *take, void *payload, msp_error *err)
{
    msp_cell cells[MAX_COLUMNS];
    size_t n = msp_json_count(line);

    if (msp_json_kind_of(line) != MSP_JSON_ARRAY)
        return msp_error_set(err, MSP_E_FORMAT, "no result of a comparison: \"columns\" and \"rows\" must be lists");
    n = n < MAX_COLUMNS ? n : MAX_COLUMNS;
    for (size_t i = 0; i < n; i++)
        cells[i] = json_cell(msp_json_at(line, i));
    return take(cells, n, payload, err);
}

static msp_status
read_json_sheet(const msp_json *sheet, const msp_table_sink *sink, msp_error *err)
{
    msp_status st = read_json_line(msp_json_get(sheet, "columns"), sink->header, sink->payload, err);
    const msp_json *rows = msp_json_get(sheet, "rows");

    for (size_t i = 0; st == MSP_OK && i < msp_json_count(rows); i++)
        st = read_json_line(msp_json_at(rows, i), sink->row, sink->payload, err);
    return st;
}

/* A table, and before it the verdict, which stands in its further sheets; verdict NULL: that is passed over. */
static msp_status
read_json_sheets(const msp_json *root, const msp_table_sink *verdict, const msp_table_sink *table, msp_error *err)
{
    const msp_json *sheets = msp_json_get(root, "sheets");
    msp_status st = MSP_OK;

    for (size_t i = 0; verdict != NULL && st == MSP_OK && i < msp_json_count(sheets); i++)
        if (msp_str_eq(msp_json_string(msp_json_get(msp_json_at(sheets, i), "name")), MSP_STR("Verdict")))
            st = read_json_sheet(msp_json_at(sheets, i), verdict, err);
    return st == MSP_OK ? read_json_sheet(root, table, err) : st;
}

static msp_status
read_json(const char *path, const msp_table_sink *verdict, const msp_table_sink *table, msp_error *err)
{
    msp_mapping map = {0};
    msp_json_doc doc = {0};
    msp_status st = msp_map_open(&map, path, err);

    if (st != MSP_OK)
        return st;
    st = msp_json_parse(&doc, map.addr, map.size, err);
    if (st == MSP_OK)
        st = read_json_sheets(doc.root, verdict, table, err);
    msp_json_doc_release(&doc);
    if (st != MSP_OK)
        msp_error_prefix(err, st, "%s: ", path);
    st = msp_map_blame(&map, AT_FDCWD, path, st, err);
    msp_map_close(&map);
    return st;
}

/* "verdict_rank0_<time>.json" beside "compare_result_rank0_<time>.csv", where there is one. */
static msp_status
read_verdict_beside(const reader *r, const msp_table_sink *verdict, msp_error *err)
{
    msp_str stem = stem_of(r->path), word = MSP_STR("compare_result");
    msp_buf path = {0};
    msp_status st = MSP_OK;

    if (!msp_str_starts(stem, word))
        return MSP_OK;
    msp_buf_printf(&path, "%.*sverdict%.*s.json", (int)(stem.p - r->path), r->path, (int)(stem.len - word.len),
                   stem.p + word.len);
    if (path.failed)
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    else if (msp_path_kind_of(path.p) == MSP_PATH_FILE)
        st = read_json(path.p, NULL, verdict, err);
    msp_buf_release(&path);
    return st;
}

static msp_status
read_table(reader *r, msp_error *err)
{
    msp_table_sink sink = {read_header, read_row, r}, verdict = msp_report_verdict_sink(&r->told);
    msp_status st;

    if (has_ext(msp_str_of(r->path), ".json")) {
        st = read_json(r->path, &verdict, &sink, err);
    } else {
        st = has_ext(msp_str_of(r->path), ".csv") ? read_verdict_beside(r, &verdict, err)
                                                  : msp_table_read_sheet(r->path, "Verdict", &verdict, err);
        if (st == MSP_OK)
            st = msp_table_read(r->path, &sink, err);
    }

    if (r->no_page.status != MSP_OK)
        return msp_error_set(err, r->no_page.status, "%s; choose another folder with -o", r->no_page.message);
    if (st == MSP_OK && r->part == NULL)
        st = msp_error_set(err, MSP_E_FORMAT, "%s: is empty", r->path);
    return st;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The dump.json whose stack and construct belong to a table: dump itself, or in its folder, or in that of this rank. */
static msp_status
find_dump(char **out, const char *dump, const char *rank, msp_error *err)
{
    char *own = msp_path_join(dump, "dump.json"), *folder = msp_path_join(dump, rank);
    char *of_rank = folder == NULL ? NULL : msp_path_join(folder, "dump.json");
    const char *const tried[] = {dump, own, of_rank};
    bool found = false;

    for (size_t i = 0; i < 3 && !found; i++) {
        found = tried[i] != NULL && msp_path_kind_of(tried[i]) == MSP_PATH_FILE;
        *out = found ? msp_result_text(msp_str_of(tried[i])) : NULL;
    }
    msp_free(own);
    msp_free(folder);
    msp_free(of_rank);
    if (!found)
        return msp_error_set(err, MSP_E_NOT_FOUND, "%s: neither a dump.json nor a folder with that of %s", dump, rank);
    return *out == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory") : MSP_OK;
}

static msp_status
report_table(const char *path, const char *page, const char *dump, size_t ntables, msp_page_part **part,
             msp_compare_pair *out, msp_error *err)
{
    reader r = {.path = path,
                .page = page,
                .out = out,
                .told = {.out = out},
                .max_rows = PAGE_RUN_ROWS / (int64_t)ntables};
    char *json = NULL, *stack = NULL;
    msp_status st;

    out->step = out->rank = out->bench_step = out->bench_rank = MSP_DUMP_NO_NUMBER;
    out->label = msp_result_text(label_of(path));
    out->group = msp_result_text(MSP_STR(""));
    out->npu_path = msp_result_text(msp_str_of(path));
    st = out->label == NULL || out->group == NULL || out->npu_path == NULL
             ? msp_error_set(err, MSP_E_NOMEM, "out of memory")
             : MSP_OK;
    if (st == MSP_OK && dump != NULL)
        st = find_dump(&json, dump, out->label, err);
    stack = json != NULL ? msp_path_beside(json, "stack.json") : NULL;
    if (stack != NULL && msp_path_kind_of(stack) == MSP_PATH_FILE && msp_stack_open(&r.stack, stack, NULL) != MSP_OK)
        r.stack = NULL; /* a broken one is like none */
    if (st == MSP_OK)
        st = read_table(&r, err);
    if (st == MSP_OK && json != NULL)
        st = msp_page_feed_construct(r.part, json, err);
    msp_report_verdict_end(&r.told);
    if (st == MSP_OK)
        st = msp_page_feed_verdict(&(msp_page_feed){.part = r.part}, out, NULL, err);
    if (st == MSP_OK)
        st = msp_page_part_finish(r.part, err);
    *part = r.part;
    msp_report_verdict_release(&r.told);
    msp_stack_close(r.stack);
    msp_buf_release(&r.stack_text);
    msp_free(stack);
    msp_free(json);
    return st;
}

/* <dir>/<stem>.html, or with a number where there is one already. */
static char *
free_name(const char *dir, msp_str stem)
{
    for (int i = 1; i < 1000; i++) {
        msp_buf path = {0};
        struct stat info;
        char *copy;

        msp_buf_printf(&path, i == 1 ? "%s/%.*s.html" : "%s/%.*s_%d.html", dir, (int)stem.len, stem.p, i);
        copy = path.failed ? NULL : msp_result_text(msp_buf_view(&path));
        msp_buf_release(&path);
        if (copy == NULL || lstat(copy, &info) != 0)
            return copy;
        msp_free(copy);
    }
    return NULL;
}

/* Tables that another program wrote have none. */
static bool
have_verdicts(const msp_compare_result *r)
{
    size_t n = 0;

    for (size_t i = 0; i < r->npairs; i++)
        n += r->pairs[i].answer.sentence != NULL;
    return n == r->npairs;
}

static msp_status
report_tables(msp_report_result *out, char **tables, size_t n, const msp_report_options *opt, msp_error *err)
{
    msp_compare_options shown = {.npu_path = opt->result};
    msp_compare_result result = {0};
    msp_page_run page = {0};
    char *beside = msp_path_beside(tables[0], "");
    msp_status st = MSP_OK;

    result.pairs = msp_alloc_zero(n, sizeof(*result.pairs));
    page.parts = msp_alloc_zero(n, sizeof(*page.parts));
    result.npairs = page.nparts = n;
    if (opt->output_dir != NULL)
        st = msp_path_make_dirs(opt->output_dir, err);
    if (st == MSP_OK && beside != NULL) {
        if (beside[0] != '\0' && beside[strlen(beside) - 1] == '/' && beside[1] != '\0')
            beside[strlen(beside) - 1] = '\0';
        page.path = free_name(opt->output_dir != NULL ? opt->output_dir : beside, stem_of(tables[0]));
    }
    if (st == MSP_OK && (result.pairs == NULL || page.parts == NULL || page.path == NULL))
        st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n && st == MSP_OK; i++) {
        st = report_table(tables[i], page.path, opt->dump, n, &page.parts[i], &result.pairs[i], err);
        out->rows += (size_t)result.pairs[i].counts.rows;
        out->wrong += (size_t)result.pairs[i].counts.wrong;
    }
    if (st == MSP_OK && have_verdicts(&result))
        st = msp_answer_run(&result, err);
    if (st == MSP_OK)
        st = msp_page_run_write(&page, &result, &shown, err);
    if (st == MSP_OK) {
        out->tables = n;
        out->level = result.level;
        out->sentence = result.sentence;
        result.sentence = NULL;
        out->path = page.path;
        page.path = NULL;
    }
    msp_page_run_release(&page);
    msp_compare_result_release(&result);
    msp_free(beside);
    return st;
}

msp_status
msp_report_run(msp_report_result *out, const msp_report_options *opt, msp_error *err)
{
    char **tables = NULL;
    size_t n = 0;
    msp_status st = MSP_OK;

    *out = (msp_report_result){0};
    switch (msp_path_kind_of(opt->result)) {
    case MSP_PATH_FILE:
        if (!msp_result_add(&tables, &n, msp_str_of(opt->result)))
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
        break;
    case MSP_PATH_DIR:
        st = find_tables(&tables, &n, opt->result, err);
        break;
    default:
        st = msp_error_set(err, MSP_E_NOT_FOUND, "%s: no such file or folder", opt->result);
    }
    if (st == MSP_OK)
        st = report_tables(out, tables, n, opt, err);
    for (size_t i = 0; i < n; i++)
        msp_free(tables[i]);
    msp_free(tables);
    return st;
}

void
msp_report_result_release(msp_report_result *r)
{
    msp_free(r->path);
    msp_free(r->sentence);
    *r = (msp_report_result){0};
}
