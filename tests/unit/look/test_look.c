/* test_look.c - one dump in memory: what is found in it, and that running out of memory is an error and no crash. */
#include <math.h>
#include <sys/stat.h>
#include "unit.h"
#include "core/alloc.h"
#include "msprobe/look.h"

#define LEAF(shape, max, norm)                                                                       \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": " shape ", \"Max\": " max \
    ", \"Min\": -1, \"Mean\": 0, \"Norm\": " norm ", \"requires_grad\": false}"
#define CALL(name, in, out) "\"" name "\": {\"input_args\": [" in "], \"input_kwargs\": {}, \"output\": [" out "]}"

static const char text[] = "{\"task\": \"statistics\", \"level\": \"mix\", \"data\": {" CALL(
    "Functional.linear.0.forward", LEAF("[2, 3]", "1", "2"),
    LEAF("[2, 2]", "1",
         "3")) ", " CALL("Module.a.Linear.forward.0", LEAF("[2, 3]", "1", "2"),
                         LEAF("[2, 2]", "1",
                              "3")) ", " CALL("Tensor.exp.0.forward", LEAF("[2, 2]", "1", "3"),
                                              LEAF("[2, 2]", "Infinity",
                                                   "Infinity")) ", " CALL("Tensor.mul.0.forward",
                                                                          LEAF("[2, 2]", "Infinity", "Infinity"),
                                                                          LEAF("[2, 2]", "NaN", "NaN")) "}}";

static msp_dump_layout layout;

static int
write_dump(void **state)
{
    msp_error err;

    (void)state;
    if (msp_dump_find(&layout, write_file("dump.json", text, sizeof(text) - 1), &err) != MSP_OK)
        fail_msg("%s", err.message);
    return 0;
}

static int
forget(void **state)
{
    msp_dump_layout_release(&layout);
    return remove_scratch(state);
}

static msp_look *
open_it(void)
{
    msp_look *l;
    msp_error err;

    if (msp_look_open(&l, &layout.places[0], &err) != MSP_OK)
        fail_msg("%s", err.message);
    return l;
}

static void
assert_text(msp_look_text t, const char *expected)
{
    assert_int_equal(t.len, strlen(expected));
    assert_memory_equal(t.p, expected, t.len);
}

static void
the_summary_counts_calls_and_tensors(void **state)
{
    msp_look *l = open_it();
    const msp_look_summary *s = msp_look_summary_of(l);

    (void)state;
    assert_int_equal(s->calls, 4);
    assert_int_equal(s->modules, 1);
    assert_int_equal(s->tensors, 8);
    assert_int_equal(s->elements, 2 * 6 + 6 * 4);
    assert_int_equal(s->nkinds, 4);
    assert_int_equal(s->ngrowth, 1); /* the module around linear grows as that does */
    assert_true(s->growth[0].in == 2 && s->growth[0].out == 3);
    msp_look_close(l);
}

static void
nan_made_from_inf_is_told_from_nan_that_was_made_from_finite_numbers(void **state)
{
    msp_look *l = open_it();
    const msp_look_summary *s = msp_look_summary_of(l);
    msp_look_call call;

    (void)state;
    assert_int_equal(s->inf.origin, MSP_LOOK_MADE);
    msp_look_call_at(&call, l, s->inf.call);
    assert_text(call.name, "Tensor.exp.0.forward");
    assert_int_equal(s->nan.origin, MSP_LOOK_UNCLEAR);
    msp_look_call_at(&call, l, s->nan.call);
    assert_text(call.name, "Tensor.mul.0.forward");
    assert_true(call.bad_in && call.bad_out);
    assert_true(isnan(call.norm_in));
    msp_look_close(l);
}

static void
a_row_tells_everything_that_was_recorded(void **state)
{
    msp_look *l = open_it();
    msp_look_row row;

    (void)state;
    msp_look_row_at(&row, l, 1);
    assert_text(row.name, "Functional.linear.0.forward.output.0");
    assert_text(row.dtype, "torch.float32");
    assert_text(row.shape, "[2, 2]");
    assert_string_equal(row.section, "output");
    assert_string_equal(row.grad, "False");
    assert_int_equal(row.bytes, 16);
    assert_null(row.file.p);
    assert_int_equal(row.checksum.kind, MSP_CELL_EMPTY);
    msp_look_close(l);
}

static void
calls_are_found_by_name_and_suggested_by_likeness(void **state)
{
    static const struct {
        const char *name;
        size_t n, first;
    } cases[] = {{"Tensor.exp.0.forward", 1, 2},
                 {"Tensor.exp.0.forward.input.0", 1, 2},
                 {"Tensor", 2, 2},
                 {"LINEAR", 2, 0},
                 {"nothing", 0, 0},
                 {"", 0, 0}};
    msp_look_text near[2];
    msp_look *l = open_it();
    size_t *calls, n;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(msp_look_search(&calls, &n, l, cases[i].name, NULL), MSP_OK);
        assert_int_equal(n, cases[i].n);
        assert_true(n == 0 || calls[0] == cases[i].first);
        msp_look_free(calls);
    }
    assert_int_equal(msp_look_suggest(near, 2, l, "Tensor.exq.0.forward"), 1);
    assert_text(near[0], "Tensor.exp.0.forward");
    assert_int_equal(msp_look_suggest(near, 2, l, "entirely different"), 0);
    msp_look_close(l);
}

static void
every_allocation_may_fail(void **state)
{
    msp_status st = MSP_E_NOMEM;

    (void)state;
    for (size_t i = 0; st != MSP_OK && i < 10000; i++) {
        msp_look *l = NULL;
        msp_error err;

        msp_alloc_fail_after((long)i);
        st = msp_look_open(&l, &layout.places[0], &err);
        msp_alloc_fail_after(-1);
        assert_true(st == MSP_OK || (st == MSP_E_NOMEM && l == NULL));
        msp_look_close(l);
    }
    assert_int_equal(st, MSP_OK);
}

static void
two_tensors_are_judged_as_compare_does(void **state)
{
    const float a[4] = {1, 2, 3, 4}, b[4] = {1, 2, 3, 7};
    msp_look_difference d;
    msp_tensor n, t;

    (void)state;
    assert_int_equal(msp_tensor_view(&n, a, MSP_F32, 1, (const int64_t[]){4}, NULL), MSP_OK);
    assert_int_equal(msp_tensor_view(&t, b, MSP_F32, 1, (const int64_t[]){4}, NULL), MSP_OK);
    assert_int_equal(msp_look_at_two(&d, &n, &t, 1, NULL), MSP_OK);
    assert_string_equal(d.verdict, "No");
    assert_true(d.max_abs.as.f == 3);
    assert_int_equal(d.differ, 1);
    assert_int_equal(d.first, 3);
    assert_false(d.identical);
    assert_string_equal(d.pattern, "one element is wrong: number 3");
}

/* The number of elements in each bin, as digits. */
static const char *
bins_of(const double *values, int64_t n)
{
    static char digits[MSP_LOOK_BINS + 1];
    msp_look_values v;
    msp_tensor t;

    assert_int_equal(msp_tensor_view(&t, values, MSP_F64, 1, &n, NULL), MSP_OK);
    msp_look_at_tensor(&v, &t, 1);
    for (int i = 0; i < MSP_LOOK_BINS; i++)
        digits[i] = (char)('0' + v.bins[i]);
    return digits;
}

static void
every_finite_number_has_a_bin_however_near_or_far_they_are(void **state)
{
    const double smallest = 4.9406564584124654e-324, largest = 1.7976931348623157e308;
    const double near[] = {0, smallest}, far[] = {-largest, 0, largest}, one[] = {3, 3, NAN, INFINITY};
    char expected[MSP_LOOK_BINS + 1];

    (void)state;
    memset(expected, '0', MSP_LOOK_BINS);
    expected[MSP_LOOK_BINS] = '\0';
    expected[0] = expected[MSP_LOOK_BINS - 1] = '1';
    assert_string_equal(bins_of(near, 2), expected);
    expected[MSP_LOOK_BINS / 2] = '1';
    assert_string_equal(bins_of(far, 3), expected);
    expected[MSP_LOOK_BINS / 2] = expected[MSP_LOOK_BINS - 1] = '0';
    expected[0] = '2';
    assert_string_equal(bins_of(one, 4), expected);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_summary_counts_calls_and_tensors),
        TEST(nan_made_from_inf_is_told_from_nan_that_was_made_from_finite_numbers),
        TEST(a_row_tells_everything_that_was_recorded),
        TEST(calls_are_found_by_name_and_suggested_by_likeness),
        TEST(every_allocation_may_fail),
        TEST(two_tensors_are_judged_as_compare_does),
        TEST(every_finite_number_has_a_bin_however_near_or_far_they_are),
    };

    return cmocka_run_group_tests_name("look", tests, write_dump, forget);
}
