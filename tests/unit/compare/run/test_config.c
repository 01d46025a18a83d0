/* test_config.c - compare.json: what is read, and what is refused with which words. */
#include "unit.h"
#include "core/alloc.h"
#include "msprobe/compare.h"

static msp_status
load(msp_compare_config *c, const char *text, msp_error *err)
{
    return msp_compare_config_load(c, write_file("compare.json", text, strlen(text)), err);
}

static void
the_manual_s_own_example_with_its_comments_is_read(void **state)
{
    static const char text[] =
        "{\n\"npu_path\": \"./npu_dump/step0\",  # step level\n"
        "\"bench_path\": \"./bench#dump/step0\",  # the same\n\"is_print_compare_log\": true\n}\n";
    msp_compare_config c;
    msp_error err;

    (void)state;
    assert_int_equal(load(&c, text, &err), MSP_OK);
    assert_string_equal(c.npu_path, "./npu_dump/step0");
    assert_string_equal(c.bench_path, "./bench#dump/step0");
    assert_null(c.stack_path);
    assert_true(c.is_print_compare_log);
    msp_compare_config_release(&c);
}

static void
every_key_is_read(void **state)
{
    static const char text[] =
        "{\"npu_path\": \"a\", \"bench_path\": \"b\", \"stack_path\": \"s\","
        "\"is_print_compare_log\": false, \"rank_id\": [0, 3], \"step_id\": [], \"common\": true,"
        "\"map_dict\": {\"x\": \"y\"}}";
    msp_compare_options opt;
    msp_compare_config c;
    msp_error err;

    (void)state;
    msp_compare_options_init(&opt);
    assert_int_equal(load(&c, text, &err), MSP_OK);
    msp_compare_config_apply(&opt, &c);
    assert_string_equal(opt.stack_path, "s");
    assert_false(opt.log_rows);
    assert_true(opt.has_rank_id && opt.has_step_id && opt.common);
    assert_int_equal(opt.nrank_id, 2);
    assert_int_equal(opt.rank_id[1], 3);
    assert_int_equal(opt.nstep_id, 0);
    assert_string_equal(opt.map_dict[0][0], "x");
    assert_string_equal(opt.map_dict[0][1], "y");
    msp_compare_config_release(&c);
}

static void
what_the_manual_s_functions_call_the_paths_is_understood(void **state)
{
    static const char text[] =
        "{\"npu_json_path\": \"a\", \"bench_json_path\": \"b\", \"stack_json_path\": \"s\", \"bench_path\": \"c\"}";
    msp_compare_config c;
    msp_error err;

    (void)state;
    assert_int_equal(load(&c, text, &err), MSP_OK);
    assert_string_equal(c.npu_path, "a");
    assert_string_equal(c.bench_path, "c");
    assert_string_equal(c.stack_path, "s");
    msp_compare_config_release(&c);
}

static void
wrong_files_are_refused_with_the_reason(void **state)
{
    static const struct {
        const char *text;
        msp_status status;
        const char *message;
    } cases[] = {
        {"[]", MSP_E_FORMAT, "input_param should be dict, please check!"},
        {"{\"npu_path\": ", MSP_E_FORMAT, "line 1"},
        {"{\"bench_path\": \"b\"}", MSP_E_INVALID, "Missing npu_path in input configuration file, please check!"},
        {"{\"npu_path\": \"a\"}", MSP_E_INVALID, "Missing bench_path in input configuration file, please check!"},
        {"{\"npu_path\": \"\", \"bench_path\": \"b\"}", MSP_E_INVALID, "Missing npu_path"},
        {"{\"npu_path\": 5, \"bench_path\": \"b\"}", MSP_E_INVALID, "npu_path must be a path"},
        {"{\"npu_path\": \"a\", \"bench_path\": \"b\", \"is_print_compare_log\": \"yes\"}", MSP_E_INVALID,
         "is_print_compare_log must be true or false"},
        {"{\"npu_path\": \"a\", \"bench_path\": \"b\", \"rank_id\": 0}", MSP_E_INVALID, "rank_id must be a list"},
        {"{\"npu_path\": \"a\", \"bench_path\": \"b\", \"rank_id\": [-1]}", MSP_E_INVALID, "rank_id must be a list"},
        {"{\"npu_path\": \"a\", \"bench_path\": \"b\", \"map_dict\": {\"a\": 1}}", MSP_E_INVALID, "map_dict must be"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msp_compare_config c;
        msp_error err;

        assert_int_equal(load(&c, cases[i].text, &err), cases[i].status);
        if (strstr(err.message, cases[i].message) == NULL)
            fail_msg("\"%s\" is not in \"%s\"", cases[i].message, err.message);
        assert_null(c.npu_path);
    }
}

static void
a_missing_file_is_not_found(void **state)
{
    msp_compare_config c;
    msp_error err;

    (void)state;
    assert_int_equal(msp_compare_config_load(&c, scratch_path("none.json"), &err), MSP_E_NOT_FOUND);
}

static void
no_failing_allocation_leaks(void **state)
{
    static const char text[] = "{\"npu_path\": \"a\", \"bench_path\": \"b\", \"stack_path\": \"s\", \"rank_id\": [1],"
                               "\"map_dict\": {\"x\": \"y\"}}";
    int64_t live = msp_alloc_live();
    msp_status st = MSP_E_NOMEM;

    (void)state;
    for (int64_t n = 0; st != MSP_OK && n < 1000; n++) {
        msp_compare_config c;

        write_file("compare.json", text, sizeof(text) - 1);
        msp_alloc_fail_after(n);
        st = msp_compare_config_load(&c, scratch_path("compare.json"), NULL);
        msp_alloc_fail_after(-1);
        msp_compare_config_release(&c);
        assert_int_equal(msp_alloc_live(), live);
    }
    assert_int_equal(st, MSP_OK);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_manual_s_own_example_with_its_comments_is_read),
        TEST(every_key_is_read),
        TEST(what_the_manual_s_functions_call_the_paths_is_understood),
        TEST(wrong_files_are_refused_with_the_reason),
        TEST(a_missing_file_is_not_found),
        TEST(no_failing_allocation_leaks),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
