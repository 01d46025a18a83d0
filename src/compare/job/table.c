/*
 * table.c - the table of the job: a row for every (step, rank), in the order of the pairs.
 *
 * Columns: Step, Rank, File, Role (msp_job_role_text), Order (1 is the earliest wrong call of all; ranks that go wrong
 * at the same time share a number), First Wrong Call, Reason, First Non-finite Call, Waited For (the communication call
 * that the rank waited for last before it went wrong), Inherited Through, NPU Calls, Bench Calls, Rows, Matched, Wrong,
 * Note, Stack.
 */
#include "compare/job/job.h"
#include "compare/job/notes.h"

#include "compare/run/formats.h"
#include "core/alloc.h"
#include "core/path.h"

static const msp_column columns[] = {{"Step", 0},        {"Rank", 0},
                                     {"File", 12},       {"Role", 12},
                                     {"Order", 0},       {"First Wrong Call", 45},
                                     {"Reason", 45},     {"First Non-finite Call", 30},
                                     {"Waited For", 35}, {"Inherited Through", 35},
                                     {"NPU Calls", 0},   {"Bench Calls", 0},
                                     {"Rows", 0},        {"Matched", 0},
                                     {"Wrong", 0},       {"Note", 45},
                                     {"Stack", 45}};

enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static msp_cell
text_cell(const char *text)
{
    return text == NULL ? (msp_cell){0} : msp_cell_text(text, strlen(text));
}

static msp_cell
number_cell(int64_t v)
{
    return v == MSP_DUMP_NO_NUMBER ? (msp_cell){0} : msp_cell_int(v);
}

static msp_status
write_row(msp_table *t, const msp_compare_pair *p, msp_buf *stack, msp_error *err)
{
    const msp_compare_place *place = &p->place;
    bool read = p->npu_path != NULL && p->bench_path != NULL && place->calls[0] + place->calls[1] > 0;
    msp_cell cells[COLUMNS] = {
        number_cell(msp_job_step(p)),
        number_cell(msp_job_rank(p)),
        text_cell(msp_dump_kind_file(p->kind)),
        text_cell(msp_job_role_text(place->role)),
        place->order > 0 ? msp_cell_int(place->order) : (msp_cell){0},
        text_cell(place->wrong),
        text_cell(place->why),
        text_cell(place->nonfinite),
        text_cell(place->after),
        text_cell(place->through),
        number_cell(read ? place->calls[0] : MSP_DUMP_NO_NUMBER),
        number_cell(read ? place->calls[1] : MSP_DUMP_NO_NUMBER),
        msp_cell_int(p->counts.rows),
        msp_cell_int(p->counts.matched),
        msp_cell_int(p->counts.wrong),
        text_cell(place->note),
    };
    msp_row_colour colour = place->role == MSP_JOB_FIRST          ? MSP_ROW_RED
                            : place->role == MSP_JOB_NOT_COMPARED ? MSP_ROW_YELLOW
                                                                  : MSP_ROW_PLAIN;

    msp_buf_clear(stack);
    for (size_t i = 0; i < place->nstack; i++)
        msp_buf_printf(stack, "%s%s", i > 0 ? "\n" : "", place->stack[i]);
    if (stack->failed)
        return msp_error_set(err, MSP_E_NOMEM, "out of memory");
    if (stack->len > 0)
        cells[COLUMNS - 1] = msp_cell_text(stack->p, stack->len);
    return msp_table_row(t, cells, colour, err);
}

static msp_status
write_table(const msp_compare_result *out, const char *path, msp_table_format format, int threads, msp_error *err)
{
    msp_table_options opt = {.sheet = "Job", .total_rows = (int64_t)out->npairs, .threads = threads};
    msp_table *t = NULL;
    msp_buf stack = {0};
    msp_status st = msp_table_open(&t, path, format, columns, COLUMNS, &opt, err);

    for (size_t i = 0; i < out->npairs && st == MSP_OK; i++)
        st = write_row(t, &out->pairs[i], &stack, err);
    if (st == MSP_OK)
        st = msp_table_finish(t, err);
    msp_table_close(t);
    msp_buf_release(&stack);
    return st;
}

msp_status
msp_job_write(msp_compare_result *out, const msp_compare_options *opt, const char *dir, const char *timestamp,
              msp_error *err)
{
    unsigned formats = opt->formats != 0 ? opt->formats : MSP_COMPARE_XLSX;
    msp_status st = msp_path_make_dirs(dir, err);

    for (size_t i = 0; i < MSP_OUTPUTS_FORMATS && st == MSP_OK; i++) {
        char *path;

        if ((formats & msp_outputs_formats[i].bit) == 0)
            continue;
        path = msp_plan_file(dir, "job_table", timestamp, msp_outputs_formats[i].ext);
        st = path == NULL ? msp_error_set(err, MSP_E_NOMEM, "out of memory")
                          : write_table(out, path, msp_outputs_formats[i].format, opt->threads, err);
        if (st == MSP_OK && !msp_result_add(&out->files, &out->nfiles, msp_str_of(path)))
            st = msp_error_set(err, MSP_E_NOMEM, "out of memory");
        msp_free(path);
    }
    return st;
}
