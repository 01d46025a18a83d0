/*
 * test_cut_files.c - files that somebody cuts short while they are compared: a clear error, and the others go on.
 *
 * The cut happens at points that no clock decides: when a file has just been mapped (msp_map_on_open()), and when so
 * many allocations have been made (msp_alloc_tell_after()), which is nearly everywhere.
 */
#include "unit.h"
#include <sys/stat.h>
#include "core/alloc.h"
#include "core/file.h"
#include "core/path.h"
#include "core/str.h"
#include "msprobe/audit.h"
#include "msprobe/compare.h"
#include "msprobe/look.h"

enum { CALLS = 600, ELEMENTS = 60000 };

/* dump.json and stack.json, each large enough to be mapped. */
static void
write_dump(const char *folder, const char *task, const char *more)
{
    msp_buf dump = {0}, stack = {0};
    char name[256];

    msp_buf_printf(&dump, "{\"task\": \"%s\", \"framework\": \"pytorch\", \"data\": {", task);
    msp_buf_text(&stack, "{");
    for (int i = 0; i < CALLS; i++) {
        msp_buf_printf(&dump,
                       "%s\"Torch.add.%d.forward\": {\"input_args\": [], \"output\": [{\"type\": \"torch.Tensor\", "
                       "\"dtype\": \"torch.float32\", \"shape\": [%d], \"Max\": 1.0, \"Min\": 0.5, \"Mean\": 0.7, "
                       "\"Norm\": %d.5%s}]}",
                       i > 0 ? ", " : "", i, ELEMENTS, i, i < 2 ? more : "");
        if (i < 2 && more[0] != '\0') { /* the name of a file of its own */
            dump.len -= 3;
            msp_buf_printf(&dump, "%d.npy\"}]}", i);
        }
        msp_buf_printf(&stack,
                       "%s\"%d\": [[\"Torch.add.%d.forward\"], [\"File /home/somebody/a/long/path/train.py, line "
                       "%d, in forward, \\n y = torch.add(x, z)\"]]",
                       i > 0 ? ", " : "", i, i, i);
    }
    msp_buf_text(&dump, "}}");
    msp_buf_text(&stack, "}");
    assert_true(!dump.failed && !stack.failed && dump.len > 65536 && stack.len > 65536);
    snprintf(name, sizeof(name), "%s/dump.json", folder);
    write_file(name, dump.p, dump.len);
    snprintf(name, sizeof(name), "%s/stack.json", folder);
    write_file(name, stack.p, stack.len);
    msp_buf_release(&dump);
    msp_buf_release(&stack);
}

static void
write_job(void)
{
    write_dump("npu/rank0", "statistics", "");
    write_dump("npu/rank1", "statistics", "");
    write_dump("bench/rank0", "statistics", "");
    write_dump("bench/rank1", "statistics", "");
}

static void
write_tensors(const char *folder)
{
    float *values = calloc(ELEMENTS, sizeof(*values));
    const int64_t shape[1] = {ELEMENTS};
    char name[256];
    msp_tensor t;

    write_dump(folder, "tensor", ", \"data_name\": \"t");
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = 1;
    assert_int_equal(msp_tensor_view(&t, values, MSP_F32, 1, shape, NULL), MSP_OK);
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s/dump_tensor_data", folder);
        assert_int_equal(msp_path_make_dirs(scratch_path(name), NULL), MSP_OK);
        snprintf(name, sizeof(name), "%s/dump_tensor_data/t%d.npy", folder, i);
        assert_int_equal(msp_npy_save(scratch_path(name), &t, NULL), MSP_OK);
    }
    free(values);
}

/* ---- the cut ----------------------------------------------------------------------------------------------------- */

typedef struct cutter {
    char victim[512]; /* absolute path */
    const char *when; /* the end of the path whose mapping is waited for; NULL: something else */
    off_t to;         /* new size; below 0: so many bytes less */
    bool done;
} cutter;

static void
cut(cutter *c)
{
    struct stat now;

    if (c->done)
        return;
    c->done = true;
    assert_int_equal(stat(c->victim, &now), 0);
    assert_int_equal(truncate(c->victim, c->to < 0 ? now.st_size + c->to : c->to), 0);
}

static void
on_open(const char *path, void *payload)
{
    cutter *c = payload;

    if (c->when != NULL && msp_str_ends(msp_str_of(path), msp_str_of(c->when)))
        cut(c);
}

static void
on_allocation(void *payload)
{
    cut(payload);
}

static cutter
cutter_of(const char *victim, const char *when, off_t to)
{
    cutter c = {.when = when, .to = to};

    snprintf(c.victim, sizeof(c.victim), "%s", scratch_path(victim));
    return c;
}

static msp_status
run(msp_compare_result *res, cutter *c, const char *npu, const char *bench, bool da)
{
    static char paths[3][512];
    msp_compare_options opt;
    msp_status st;
    msp_error err;

    snprintf(paths[0], sizeof(paths[0]), "%s", scratch_path(npu));
    snprintf(paths[1], sizeof(paths[1]), "%s", scratch_path(bench));
    snprintf(paths[2], sizeof(paths[2]), "%s", scratch_path("out"));
    msp_compare_options_init(&opt);
    opt.npu_path = paths[0];
    opt.bench_path = paths[1];
    opt.output_dir = paths[2];
    opt.formats = MSP_COMPARE_CSV;
    opt.threads = 1;
    opt.diff_analyze = da;
    msp_map_on_open(on_open, c);
    st = msp_compare_run(res, &opt, &err);
    msp_map_on_open(NULL, NULL);
    return st;
}

static bool
tells_of_the_cut(const char *text, const char *victim)
{
    return text != NULL && strstr(text, victim) != NULL && strstr(text, "was cut short while it was read") != NULL;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void
a_json_that_is_cut_when_it_was_just_opened_fails_its_rank_alone(void **state)
{
    static const off_t sizes[] = {0, 4096, 30000, -4096, -100};
    static const char *const files[] = {"npu/rank0/dump.json", "bench/rank0/dump.json", "npu/rank0/stack.json"};

    (void)state;
    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++)
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
            for (int da = 0; da < 2; da++) {
                cutter c = cutter_of(files[f], files[f], sizes[i]);
                msp_compare_result res;

                write_job();
                (void)run(&res, &c, "npu", "bench", da != 0);
                assert_true(c.done);
                assert_int_equal(res.npairs, 2);
                assert_int_equal(res.pairs[0].status, MSP_E_CHANGED);
                assert_true(tells_of_the_cut(res.pairs[0].error, files[f]));
                assert_int_equal(res.pairs[0].nfiles, 0);
                assert_int_equal(res.pairs[1].status, MSP_OK);
                assert_int_equal(res.pairs[1].counts.matched, CALLS);
                assert_int_equal(res.nfailed, 1);
                msp_compare_result_release(&res);
            }
}

/* Until the cut comes after the last allocation: every one of the first, then ever fewer. */
static void
a_json_that_is_cut_at_any_point_fails_its_rank_or_changes_nothing(void **state)
{
    long failed = 0, points = 0;
    cutter c;

    (void)state;
    for (int64_t n = 0, step = 1; points == 0 || c.done; n += step, points++) {
        msp_compare_result res;

        if (points == 0)
            write_job();
        write_dump("npu/rank0", "statistics", "");
        c = cutter_of("npu/rank0/dump.json", NULL, 5000);
        msp_alloc_tell_after(n, on_allocation, &c);
        (void)run(&res, &c, "npu", "bench", points % 4 == 3);
        msp_alloc_tell_after(-1, NULL, NULL);
        assert_int_equal(res.npairs, 2);
        assert_int_equal(res.pairs[1].status, MSP_OK);
        if (res.pairs[0].status == MSP_E_CHANGED) {
            assert_true(tells_of_the_cut(res.pairs[0].error, "npu/rank0/dump.json"));
            failed++;
        } else if (c.done && res.pairs[0].cut[0].found) { /* cut before it was opened */
            assert_true(failed == 0);
        } else {
            assert_int_equal(res.pairs[0].status, MSP_OK);
            assert_int_equal(res.pairs[0].counts.matched, CALLS);
        }
        msp_compare_result_release(&res);
        step += points > 100 ? step / 8 + 1 : 0;
    }
    assert_true(failed > 5);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void
a_tensor_file_that_is_cut_is_a_row_that_says_so_and_the_others_are_compared(void **state)
{
    static const struct {
        const char *victim, *when;
        off_t to;
    } cases[] = {
        {"tn/dump_tensor_data/t1.npy", "t1.npy", 0},      /* its own mapping: the header is gone */
        {"tn/dump_tensor_data/t1.npy", "t1.npy", 100000}, /* the header is there, half of the elements are not */
        {"tn/dump_tensor_data/t1.npy", "t1.npy", -8},     /* no page is gone */
        {"tb/dump_tensor_data/t1.npy", "t1.npy", 4096},   /* the other side, before it is opened */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cutter c = cutter_of(cases[i].victim, cases[i].when, cases[i].to);
        msp_compare_result res;
        const msp_compare_pair *p;

        write_tensors("tn");
        write_tensors("tb");
        (void)run(&res, &c, "tn", "tb", false);
        assert_true(c.done);
        p = &res.pairs[0];
        assert_int_equal(p->counts.unreadable, 1);
        assert_int_equal(p->counts.yes, 1);
        assert_int_equal(p->counts.rows, CALLS);
        if (i < 3) { /* a file that was cut before is one that cannot be read, as ever */
            assert_int_equal(p->status, MSP_E_CHANGED);
            assert_true(tells_of_the_cut(p->error, "tn/dump_tensor_data/t1.npy"));
        }
        assert_true(p->nfiles > 0); /* the table is there */
        msp_compare_result_release(&res);
    }
}

static void
a_shown_dump_or_tensor_file_that_is_cut_is_an_error(void **state)
{
    static const off_t sizes[] = {0, 5000, -50};

    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        cutter c = cutter_of("npu/rank0/dump.json", "dump.json", sizes[i]);
        msp_dump_layout layout;
        msp_tensor_file *f;
        msp_look_values v;
        msp_look *l;
        msp_error err;

        write_job();
        write_tensors("tn");
        assert_int_equal(msp_dump_find(&layout, scratch_path("npu/rank0/dump.json"), &err), MSP_OK);
        msp_map_on_open(on_open, &c);
        assert_int_equal(msp_look_open(&l, &layout.places[0], &err), MSP_E_CHANGED);
        assert_true(tells_of_the_cut(err.message, "npu/rank0/dump.json"));
        assert_null(l);
        msp_map_on_open(NULL, NULL);
        msp_dump_layout_release(&layout);
        assert_int_equal(msp_tensor_file_open(&f, scratch_path("tn/dump_tensor_data/t0.npy"), &err), MSP_OK);
        c = cutter_of("tn/dump_tensor_data/t0.npy", NULL, sizes[i]);
        cut(&c);
        msp_look_at_tensor(&v, msp_tensor_file_at(f, 0), 1);
        assert_int_equal(msp_tensor_file_check(f, c.victim, &err), MSP_E_CHANGED);
        assert_true(tells_of_the_cut(err.message, "t0.npy"));
        msp_tensor_file_close(f);
    }
}

static void
an_audited_rank_that_is_cut_is_an_error_and_no_finding(void **state)
{
    msp_audit_options opt = {.threads = 1};
    cutter c = cutter_of("npu/rank1/dump.json", "rank1/dump.json", 20000);
    msp_audit_result res;
    msp_error err;

    (void)state;
    write_job();
    opt.path = scratch_path("npu");
    msp_map_on_open(on_open, &c);
    assert_int_equal(msp_audit_run(&res, &opt, &err), MSP_E_CHANGED);
    msp_map_on_open(NULL, NULL);
    assert_true(tells_of_the_cut(err.message, "npu/rank1/dump.json"));
    msp_audit_result_release(&res);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_json_that_is_cut_when_it_was_just_opened_fails_its_rank_alone),
        TEST(a_json_that_is_cut_at_any_point_fails_its_rank_or_changes_nothing),
        TEST(a_tensor_file_that_is_cut_is_a_row_that_says_so_and_the_others_are_compared),
        TEST(a_shown_dump_or_tensor_file_that_is_cut_is_an_error),
        TEST(an_audited_rank_that_is_cut_is_an_error_and_no_finding),
    };

    return cmocka_run_group_tests_name("compare_cut", tests, NULL, remove_scratch);
}
