/* test_advisor.c - the advice of advisor_<time>.txt, and the lines of the file. */
#include "unit.h"
#include "compare/explain/advisor.h"
#include "core/alloc.h"
#include "core/file.h"

static void
the_advice_follows_from_where_the_first_wrong_row_stands(void **state)
{
    static const struct {
        const char *name, *words;
    } cases[] = {{"", "All data in comparison result meets"},
                 {"Functional.relu.0.forward.input.0", "1. Analyze the model"},
                 {"Functional.relu.0.forward.output.0", "forward API computation error"},
                 {"Functional.conv2d.0.forward.output.0", "deterministic"},
                 {"Functional.relu.0.backward.input.0", "Check whether the forward computation result"},
                 {"Functional.relu.0.backward.output.0", "backward API computation error"},
                 {"Torch.matmul.0.backward.output.0", "deterministic"}};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_non_null(strstr(msp_advisor_text(msp_str_of(cases[i].name), MSP_ADVISOR_FINE), cases[i].words));
}

static void
without_a_row_the_advice_is_that_of_the_verdict(void **state)
{
    static const char *const words[] = {"No data could be judged", "All data in comparison result meets",
                                        "Nothing is wrong by the verdict", "Check what both runs begin with"};

    (void)state;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        assert_non_null(strstr(msp_advisor_text((msp_str){NULL, 0}, (msp_advisor_pair)i), words[i]));
}

static void
the_advisor_writes_three_lines_and_the_verdict(void **state)
{
    const char *path = scratch_path("advisor.txt");
    msp_advisor_words words = {11, MSP_STR("F.x.0.forward.output.0"), "Look.", "Wrong: F.x"};
    msp_error err;
    size_t size;
    char *text;

    (void)state;
    assert_int_equal(msp_advisor_write(path, &words, &err), MSP_OK);
    assert_int_equal(msp_file_read(&text, &size, path, 1 << 20, &err), MSP_OK);
    assert_string_equal(text, "Line: 11\nSuspect Nodes: F.x.0.forward.output.0\nExpert Advice: Look.\n"
                              "Verdict: Wrong: F.x.\n");
    msp_free(text);
    words = (msp_advisor_words){-1, {NULL, 0}, "Fine.", NULL};
    assert_int_equal(msp_advisor_write(path, &words, &err), MSP_OK);
    assert_int_equal(msp_file_read(&text, &size, path, 1 << 20, &err), MSP_OK);
    assert_string_equal(text, "Line: NA\nSuspect Nodes: NA\nExpert Advice: Fine.\n");
    msp_free(text);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_advice_follows_from_where_the_first_wrong_row_stands),
        TEST(without_a_row_the_advice_is_that_of_the_verdict),
        TEST(the_advisor_writes_three_lines_and_the_verdict),
    };

    return cmocka_run_group_tests(tests, NULL, remove_scratch);
}
