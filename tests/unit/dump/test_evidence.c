/* test_evidence.c - measurements of calls: what was written is what is read, and what is no measurement is refused. */
#include "unit.h"

#include <math.h>
#include <unistd.h>
#include "dump/evidence_read.h"

static msp_measurements
parse(const char *text, msp_status want, const char *says)
{
    msp_measurements m = {0};
    msp_error err = {MSP_OK, ""};

    assert_int_equal(msp_measurements_parse(&m, text, strlen(text), &err), want);
    if (says != NULL)
        assert_non_null(strstr(err.message, says));
    return m;
}

static void
what_is_written_is_read_again(void **state)
{
    msp_local npu = {.dtype = MSP_BF16,
                     .count = 12,
                     .differ = 3,
                     .rms = 0.1,
                     .max = 0.5,
                     .tight = INFINITY,
                     .first = -1,
                     .shape = MSP_SHAPE_TAIL,
                     .wrong = 4,
                     .period = 20,
                     .value = 0},
              bench = {.dtype = MSP_BF16, .count = 12, .bias = -0.25};
    const msp_local *both[2] = {&npu, &bench}, *one[2] = {&npu, NULL};
    char path[] = "/tmp/msprobe-evidence-XXXXXX", text[128];
    msp_evidence_writer *w;
    msp_measurements m = {0};

    (void)state;
    close(mkstemp(path));
    assert_int_equal(msp_evidence_create(&w, path, NULL), MSP_OK);
    assert_int_equal(msp_evidence_call(w, "Torch.mm.0.forward", NULL, NULL), MSP_OK);
    assert_int_equal(msp_evidence_result(w, "output.0", both, 1e-7, NULL), MSP_OK);
    assert_int_equal(msp_evidence_result(w, "output.1", one, NAN, NULL), MSP_OK);
    assert_int_equal(msp_evidence_call(w, "Torch.rand.0.forward", "random: chance", NULL), MSP_OK);
    assert_int_equal(msp_evidence_close(w, NULL), MSP_OK);
    assert_int_equal(msp_measurements_read(&m, path, NULL), MSP_OK);
    unlink(path);
    assert_int_equal(m.ncalls, 2);
    assert_int_equal(m.calls[0].count, 2);
    assert_true(m.calls[0].reason.len == 0 && msp_str_eq(m.calls[1].reason, MSP_STR("random: chance")));
    assert_true(msp_str_eq(m.results[0].at, MSP_STR("output.0")) && m.results[0].inherited == 1e-7);
    assert_true(m.results[0].has[0] && m.results[0].has[1] && m.results[1].has[0] && !m.results[1].has[1]);
    assert_true(isnan(m.results[1].inherited) && isinf(m.results[0].side[0].tight));
    assert_true(m.results[0].side[0].dtype == MSP_BF16 && m.results[0].side[0].differ == 3);
    assert_true(m.results[0].side[1].bias == -0.25);
    msp_local_describe(text, sizeof(text), &m.results[0].side[0]);
    assert_string_equal(text, "the last 4 of every 20 elements are zero");
    msp_measurements_release(&m);
}

static void
what_is_no_measurement_is_refused_and_says_where(void **state)
{
    msp_measurements m[5];

    (void)state;
    m[0] = parse("", MSP_E_FORMAT, "empty");
    m[1] = parse("{\"calls\": 1}\n", MSP_E_FORMAT, "no file of measurements");
    m[2] = parse("{\"msprobe_evidence\": 7}\n", MSP_E_FORMAT, "version 7");
    m[3] = parse("{\"msprobe_evidence\": 1}\n{\"call\": \"a\"}\n", MSP_E_FORMAT, "measurement 2: no record");
    m[4] = parse("{\"msprobe_evidence\": 1}\n{\"call\": \"a\", \"results\": [{\"at\": \"output.0\", \"npu\": "
                 "{\"shape\": 99}}]}\n",
                 MSP_E_FORMAT, "without a place or a measurement");
    for (int i = 0; i < 5; i++)
        msp_measurements_release(&m[i]);
}

static void
numbers_out_of_range_become_what_is_harmless(void **state)
{
    msp_measurements m =
        parse("{\"msprobe_evidence\": 1}\n{\"call\": \"a\", \"reason\": null, \"results\": [{\"at\": \"output.0\", "
              "\"bench\": {\"dtype\": \"x\", \"count\": -5, \"differ\": 1e300, \"rms\": \"a\", \"shape\": 2}}]}",
              MSP_OK, NULL);

    (void)state;
    assert_int_equal(m.nresults, 1);
    assert_true(m.results[0].side[1].count == 0 && m.results[0].side[1].differ == 0 && isnan(m.results[0].side[1].rms));
    assert_int_equal(m.results[0].side[1].dtype, MSP_DTYPE_NONE);
    msp_measurements_release(&m);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_written_is_read_again),
        TEST(what_is_no_measurement_is_refused_and_says_where),
        TEST(numbers_out_of_range_become_what_is_harmless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
