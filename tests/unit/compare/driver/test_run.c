/* test_run.c - a whole comparison through msprobe/compare.h: what it returns, writes and leaves behind. */
#include "unit.h"
#include <dirent.h>
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/pool.h"
#include "core/str.h"
#include "msprobe/compare.h"

#define LEAF(max, more)                                                                            \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, 3], \"Max\": " #max \
    ", \"Min\": 0.5, \"Mean\": 0.7, \"Norm\": 2.5, \"requires_grad\": false" more "}"
#define CALL(name, in, out, more) \
    "\"" name "\": {\"input_args\": [" LEAF(in, more) "], \"output\": [" LEAF(out, more) "]}"
#define DUMP(task, records) "{\"task\": \"" task "\", \"framework\": \"pytorch\", \"data\": {" records "}}"

static void
write_tensor(const char *name, const float *values)
{
    int64_t shape[2] = {2, 3};
    msp_tensor t;
    msp_error err;

    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 2, shape, &err), MSP_OK);
    assert_int_equal(msp_pt_save(scratch_path(name), &t, &err), MSP_OK);
}

static msp_compare_options
options(const char *npu, const char *bench, const char *out)
{
    static char paths[3][512];
    msp_compare_options opt;

    snprintf(paths[0], sizeof(paths[0]), "%s", scratch_path(npu));
    snprintf(paths[1], sizeof(paths[1]), "%s", scratch_path(bench));
    snprintf(paths[2], sizeof(paths[2]), "%s", scratch_path(out));
    msp_compare_options_init(&opt);
    opt.npu_path = paths[0];
    opt.bench_path = paths[1];
    opt.output_dir = paths[2];
    opt.formats = MSP_COMPARE_CSV;
    opt.threads = 1;
    return opt;
}

static size_t
files_in(const char *dir)
{
    DIR *d = opendir(scratch_path(dir));
    struct dirent *e;
    size_t n = 0;

    if (d == NULL)
        return 0;
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void
write_statistics(void)
{
    write_text("npu/dump.json", DUMP("statistics", CALL("Torch.add.0.forward", 1.0, 1.0,
                                                        "") "," CALL("Torch.mul.0.forward", 1.0, 3.0,
                                                                     "") "," CALL("NPU.own.0.forward", 1, 1, "")));
    write_text("bench/dump.json", DUMP("statistics", CALL("Torch.add.0.forward", 1.0, 1.0,
                                                          "") "," CALL("Torch.mul.0.forward", 1.0, 1.0,
                                                                       "") "," CALL("Torch.x.0.forward", 1, 1, "")));
    write_text("npu/stack.json",
               "{\"0\": [[\"Torch.mul.0.forward\"], [\"File train.py, line 3\", \"File run.py, line 1\"]]}");
}

static void
the_first_wrong_row_is_described(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "out1");
    msp_compare_result res;
    msp_error err;
    const msp_compare_pair *p;

    (void)state;
    write_statistics();
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    assert_int_equal(res.npairs, 1);
    p = &res.pairs[0];
    assert_int_equal(p->mode, MSP_MODE_STATISTICS);
    assert_int_equal(p->counts.rows, 6);
    assert_int_equal(p->counts.matched, 4);
    assert_int_equal(p->counts.unmatched, 2);
    assert_int_equal(p->counts.bench_only, 2);
    assert_int_equal(p->counts.wrong, 1);
    assert_int_equal(p->counts.warning, 1);
    assert_int_equal(p->counts.clean, 3);
    assert_true(p->suspect.found);
    assert_int_equal(p->suspect.row, 3);
    assert_string_equal(p->suspect.npu_name, "Torch.mul.0.forward.output.0");
    assert_string_equal(p->suspect.api, "Torch.mul.0.forward");
    assert_string_equal(p->suspect.verdict, "Warning");
    assert_string_equal(p->suspect.diff[MSP_STAT_MAX], "2.0");
    assert_string_equal(p->suspect.rel[MSP_STAT_MAX], "200.0%");
    assert_string_equal(p->suspect.stats[0][MSP_STAT_MAX], "3.0");
    assert_int_equal(p->suspect.inputs, MSP_INPUTS_EQUAL);
    assert_int_equal(p->answer.level, MSP_ANSWER_WRONG);
    assert_int_equal(res.level, MSP_ANSWER_WRONG);
    assert_string_equal(res.sentence, p->answer.sentence);
    assert_int_equal(p->answer.blamed.row, 3);
    assert_int_equal(p->counts.differ, 1);
    assert_string_equal(p->first_differs, "Torch.mul.0.forward.output.0");
    assert_int_equal(p->answer.nnotes, 3); /* rows without partner on either side, and what stands for what */
    assert_int_equal(p->suspect.nstack, 2);
    assert_string_equal(p->suspect.stack[0], "File train.py, line 3");
    assert_int_equal(p->nfiles, 3); /* the table, the verdict and the advisor's text */
    msp_compare_result_release(&res);
}

static void
a_nan_on_one_side_only_is_wrong(void **state)
{
    msp_compare_options opt = options("nan/npu/dump.json", "nan/bench/dump.json", "out2");
    msp_compare_result res;
    msp_error err;

    (void)state;
    write_text("nan/npu/dump.json", DUMP("statistics", CALL("Torch.add.0.forward", 1.0, NaN, "")));
    write_text("nan/bench/dump.json", DUMP("statistics", CALL("Torch.add.0.forward", 1.0, 1.0, "")));
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    assert_int_equal(res.pairs[0].counts.wrong, 1);
    assert_int_equal(res.pairs[0].counts.nonfinite, 1);
    assert_string_equal(res.pairs[0].suspect.verdict, "Warning");
    assert_int_equal(res.level, MSP_ANSWER_WRONG);
    msp_compare_result_release(&res);
}

static void
the_worst_element_is_located(void **state)
{
    static const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 2, 3, 4, 7.5f, 6};
    msp_compare_options opt = options("real/npu", "real/bench", "out3");
    msp_compare_result res;
    msp_error err;
    const msp_compare_suspect *s;

    (void)state;
#define REAL                                               \
    DUMP("tensor",                                         \
         "\"Torch.add.0.forward\": {\"output\": [" LEAF(6, \
                                                        ", \"data_name\": \"Torch.add.0.forward.output.0.pt\"") "]}")
    write_text("real/npu/dump.json", REAL);
    write_text("real/bench/dump.json", REAL);
    write_text("real/npu/dump_tensor_data/x", "");
    write_text("real/bench/dump_tensor_data/x", "");
    write_tensor("real/npu/dump_tensor_data/Torch.add.0.forward.output.0.pt", a);
    write_tensor("real/bench/dump_tensor_data/Torch.add.0.forward.output.0.pt", b);
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    s = &res.pairs[0].suspect;
    assert_int_equal(res.pairs[0].mode, MSP_MODE_REAL);
    assert_int_equal(res.pairs[0].tensor_bytes, 48);
    assert_true(s->found && s->has_metrics && s->has_worst);
    assert_string_equal(s->verdict, "No");
    assert_int_equal(s->worst_index, 4);
    assert_int_equal(s->worst_ndim, 2);
    assert_int_equal(s->worst_coords[0], 1);
    assert_int_equal(s->worst_coords[1], 1);
    assert_string_equal(s->worst_value[0], "5.0");
    assert_string_equal(s->worst_value[1], "7.5");
    assert_int_equal(s->inputs, MSP_INPUTS_UNKNOWN);
    msp_compare_result_release(&res);
}

static void
a_name_that_leads_out_of_the_dump_is_not_followed(void **state)
{
    msp_compare_options opt = options("evil/dump.json", "evil/dump.json", "out4");
    msp_compare_result res;
    msp_error err;

    (void)state;
    write_text("evil/dump.json",
               DUMP("tensor", CALL("Torch.add.0.forward", 1, 1, ", \"data_name\": \"../../secret.pt\"")));
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_NOT_FOUND);
    assert_non_null(strstr(err.message, "nothing could be compared: none of the 2 pairs of tensor files can be read"));
    assert_non_null(strstr(res.pairs[0].unreadable, "no name of a file in dump_tensor_data"));
    assert_int_equal(res.pairs[0].counts.unreadable, 2);
    msp_compare_result_release(&res);
}

static void
the_time_stamp_moves_on_where_results_are_there(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "out5");
    msp_error err;

    (void)state;
    write_statistics();
    opt.timestamp = "20240229235959";
    opt.compare_only = true;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"compare_result_20240229235959.csv", "compare_result_20240301000000.csv",
                                            "compare_result_20240301000001.csv"};
        msp_compare_result res;
        struct stat st;

        assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
        assert_non_null(strstr(res.pairs[0].files[0], names[i]));
        assert_int_equal(stat(res.pairs[0].files[0], &st), 0);
        assert_int_equal(st.st_mode & 0777, 0640);
        msp_compare_result_release(&res);
    }
    opt.timestamp = "yesterday";
    {
        msp_compare_result res;

        assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_INVALID);
        msp_compare_result_release(&res);
    }
}

static bool
count_calls(const msp_compare_progress *p, void *payload)
{
    int *calls = payload;

    assert_true(p->rows_done <= p->rows_total);
    assert_non_null(p->phase);
    assert_non_null(p->rank);
    (*calls)++;
    return true;
}

static bool
stop(const msp_compare_progress *p, void *payload)
{
    (void)p;
    (void)payload;
    return false;
}

static void
progress_is_told_and_can_cancel(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "out6");
    msp_compare_result res;
    msp_error err;
    int calls = 0;

    (void)state;
    write_statistics();
    opt.progress = count_calls;
    opt.progress_payload = &calls;
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    assert_true(calls > 0);
    msp_compare_result_release(&res);
    opt = options("npu/dump.json", "bench/dump.json", "out7");
    opt.progress = stop;
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_CANCELLED);
    msp_compare_result_release(&res);
    assert_int_equal(files_in("out7"), 0);
}

static void
options_that_make_no_sense_are_refused(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "out8");
    msp_compare_result res;
    msp_error err;

    (void)state;
    write_statistics();
    opt.cell_mapping = "";
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_INVALID);
    assert_string_equal(err.message, "Argument -cm or -am is not supported in PyTorch framework");
    msp_compare_result_release(&res);
    opt = options("npu/dump.json", "bench/dump.json", "out8");
    opt.npu_path = NULL;
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_INVALID);
    msp_compare_result_release(&res);
}

static void
a_data_mapping_names_partners(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "out9");
    msp_compare_result res;
    msp_error err;

    (void)state;
    write_statistics();
    write_text("map.yaml", "# own\nNPU.own.0.forward.input.0: Torch.x.0.forward.input.0\n"
                           "NPU.own.0.forward.output.0: nowhere\n");
    opt.data_mapping = scratch_path("map.yaml");
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    assert_int_equal(res.pairs[0].counts.matched, 5);
    msp_compare_result_release(&res);
    write_text("map.yaml", "- a\n- b\n");
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_INVALID);
    assert_non_null(strstr(err.message, "map.yaml"));
    msp_compare_result_release(&res);
    write_text("map.yaml", "a: [1]\n");
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_E_INVALID);
    msp_compare_result_release(&res);
}

static bool
has_temporary_files(const char *dir)
{
    DIR *d = opendir(scratch_path(dir));
    struct dirent *e;
    bool found = false;

    if (d == NULL)
        return false;
    while ((e = readdir(d)) != NULL)
        found |= strstr(e->d_name, ".tmp") != NULL;
    closedir(d);
    return found;
}

/* A tensor of rank 1 for both sides, the bench's a little off. */
static void
write_pair(const char *name, float *values, int64_t numel)
{
    static const char *const sides[] = {"many/npu", "many/bench"};

    for (int side = 0; side < 2; side++) {
        char path[256];
        msp_tensor t;
        msp_error err;

        for (int64_t i = 0; i < numel; i++)
            values[i] = (float)(i % 97) + (float)side * 0.25f;
        snprintf(path, sizeof(path), "%s/dump_tensor_data/%s", sides[side], name);
        assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 1, &numel, &err), MSP_OK);
        assert_int_equal(msp_pt_save(scratch_path(path), &t, &err), MSP_OK);
    }
}

/* More rows than a block has; of some hundred the files are there, and one of those is worth several threads. */
static void
write_many(void)
{
    enum { CALLS = 2500, FILES = 200, LARGE = 150, NUMEL = 1100000 };
    float *values = malloc(NUMEL * sizeof(*values));
    msp_buf text = {0};

    assert_non_null(values);
    write_text("many/npu/dump_tensor_data/x", "");
    write_text("many/bench/dump_tensor_data/x", "");
    msp_buf_text(&text, "{\"task\": \"tensor\", \"framework\": \"pytorch\", \"data\": {");
    for (int i = 0; i < CALLS; i++) {
        int64_t numel = i == LARGE ? NUMEL : 3 + i % 5;
        char name[64];

        snprintf(name, sizeof(name), "Torch.add.%d.forward.output.0.pt", i);
        if (i < FILES)
            write_pair(name, values, numel);
        msp_buf_printf(&text,
                       "%s\"Torch.add.%d.forward\": {\"output\": [{\"type\": \"torch.Tensor\", \"dtype\": "
                       "\"torch.float32\", \"shape\": [%lld], \"Max\": %d.5, \"Min\": 0.25, \"Mean\": 1.0, \"Norm\": "
                       "2.0, \"requires_grad\": true, \"data_name\": \"%s\"}]}",
                       i > 0 ? ", " : "", i, (long long)numel, i, name);
    }
    msp_buf_text(&text, "}}");
    assert_false(text.failed);
    write_text("many/npu/dump.json", text.p);
    write_text("many/bench/dump.json", text.p);
    msp_buf_release(&text);
    free(values);
}

/* The csv's bytes; msp_free() gives them back. */
static char *
csv_of(msp_compare_options opt, unsigned formats, int threads, size_t *size)
{
    msp_compare_result res;
    char *text = NULL;
    msp_error err;

    opt.formats = formats;
    opt.threads = threads;
    assert_int_equal(msp_compare_run(&res, &opt, &err), MSP_OK);
    assert_int_equal(msp_file_read(&text, size, res.pairs[0].files[0], 64 << 20, &err), MSP_OK);
    msp_compare_result_release(&res);
    return text;
}

static void
a_csv_is_the_same_alone_and_beside_others_whatever_the_threads(void **state)
{
    msp_compare_options opt = options("many/npu", "many/bench", "outB");
    size_t size, other_size;
    char *one, *other;

    (void)state;
    write_many();
    one = csv_of(opt, MSP_COMPARE_CSV, 1, &size);
    assert_non_null(strstr(one, "Torch.add.150.forward.output.0,"));
    assert_non_null(strstr(one, "Torch.add.2499.forward.output.0,"));
    for (int threads = 1; threads <= 3; threads++)
        for (unsigned more = 0; more <= MSP_COMPARE_JSON; more += MSP_COMPARE_JSON) {
            other = csv_of(opt, MSP_COMPARE_CSV | more, threads, &other_size);
            assert_int_equal(other_size, size);
            assert_memory_equal(other, one, size);
            msp_free(other);
        }
    msp_free(one);
}

/* Whatever allocation fails: an error, nothing leaked, and no half-written file left. */
static void
fail_every_allocation(msp_compare_options opt, const char *out)
{
    msp_status st = MSP_E_NOMEM;
    int64_t live = msp_alloc_live();

    for (int64_t n = 0; st != MSP_OK && n < 5000; n++) {
        msp_compare_result res;
        char dir[32];

        snprintf(dir, sizeof(dir), "%s/%d", out, (int)n); /* results of the run before would be in the way */
        opt.output_dir = scratch_path(dir);
        msp_alloc_fail_after(n);
        st = msp_compare_run(&res, &opt, NULL);
        msp_alloc_fail_after(-1);
        msp_compare_result_release(&res);
        assert_int_equal(msp_alloc_live(), live);
        assert_false(has_temporary_files(dir));
    }
    assert_int_equal(st, MSP_OK);
}

static void
no_failing_allocation_leaks_or_leaves_files(void **state)
{
    msp_compare_options opt = options("npu/dump.json", "bench/dump.json", "outA");

    (void)state;
    write_statistics();
    fail_every_allocation(opt, "outA");
    opt.highlight = true;
    opt.formats = MSP_COMPARE_CSV | MSP_COMPARE_JSON;
    fail_every_allocation(opt, "outC");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_first_wrong_row_is_described),
        TEST(a_nan_on_one_side_only_is_wrong),
        TEST(the_worst_element_is_located),
        TEST(a_name_that_leads_out_of_the_dump_is_not_followed),
        TEST(the_time_stamp_moves_on_where_results_are_there),
        TEST(progress_is_told_and_can_cancel),
        TEST(options_that_make_no_sense_are_refused),
        TEST(a_data_mapping_names_partners),
        TEST(a_csv_is_the_same_alone_and_beside_others_whatever_the_threads),
        TEST(no_failing_allocation_leaks_or_leaves_files),
    };
    int failed = cmocka_run_group_tests(tests, NULL, remove_scratch);

    msp_pool_shutdown();
    return failed;
}
