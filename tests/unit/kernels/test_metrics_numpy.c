/* test_metrics_numpy.c - the pair metrics against what NumPy says: see tests/data/metrics. */
#include "unit.h"

#include <inttypes.h>
#include <math.h>
#include "core/cpu.h"
#include "msprobe/metrics.h"

enum { FIELDS = 20 };

/* A tensor from its type's name and its bytes in hex; data is the caller's to free. */
static void *
parse_tensor(msp_tensor *t, const char *type, const char *hex)
{
    msp_dtype dtype = msp_dtype_parse(type, strlen(type));
    size_t bytes = strlen(hex) / 2;
    uint8_t *data = malloc(bytes + 1);
    int64_t shape;

    assert_int_not_equal(dtype, MSP_DTYPE_NONE);
    shape = (int64_t)(bytes / msp_dtype_size(dtype));
    for (size_t i = 0; i < bytes; i++) /* at an odd address, since files promise no alignment */
        assert_int_equal(sscanf(hex + 2 * i, "%2hhx", data + 1 + i), 1);
    assert_int_equal(msp_tensor_view(t, data + 1, dtype, 1, &shape, NULL), MSP_OK);
    return data;
}

static void
check_integer(const char *name, const char *field, int64_t got, const char *want)
{
    if (got != strtoll(want, NULL, 10))
        fail_msg("%s: %s is %" PRId64 ", NumPy says %s", name, field, got, want);
}

static void
check_number(const char *name, const char *field, double got, const char *want, double tolerance)
{
    double expected = strtod(want, NULL);

    if (isnan(expected) ? !isnan(got) : !(got == expected || fabs(got - expected) <= tolerance * fabs(expected)))
        fail_msg("%s: %s is %.17g, NumPy says %.17g", name, field, got, expected);
}

static void
check_case(char *line)
{
    char *f[FIELDS] = {strtok(line, " \n")};
    void *n_data, *b_data;
    msp_tensor n, b;
    msp_metrics m;
    char name[128];

    for (int i = 1; i < FIELDS; i++)
        assert_non_null(f[i] = strtok(NULL, " \n"));
    snprintf(name, sizeof(name), "%s of %s and %s", f[0], f[1], f[3]);
    n_data = parse_tensor(&n, f[1], f[2]);
    b_data = parse_tensor(&b, f[3], f[4]);
    assert_int_equal(msp_metrics_compute(&m, &n, &b, NULL), MSP_OK);

    check_integer(name, "count", m.count, f[5]);
    check_number(name, "cosine", m.cosine, f[6], 1e-14);
    check_number(name, "euc_dist", m.euc_dist, f[7], 1e-14);
    check_number(name, "max_abs_err", m.max_abs_err, f[8], 0);
    check_integer(name, "max_abs_index", m.max_abs_index, f[9]);
    check_number(name, "max_rel_err", m.max_rel_err, f[10], 0);
    check_integer(name, "max_rel_index", m.max_rel_index, f[11]);
    check_integer(name, "below_1e3", m.below_1e3, f[12]);
    check_integer(name, "below_5e3", m.below_5e3, f[13]);
    check_number(name, "rmse", m.rmse, f[14], 1e-14);
    check_number(name, "mape", m.mape, f[15], n.numel <= 256 ? 1e-14 : 0x1p-24);
    check_integer(name, "mape_count", m.mape_count, f[16]);
    check_integer(name, "inf_sign", m.inf_sign, f[17]);
    check_integer(name, "mismatches", m.mismatches, f[18]);
    check_integer(name, "first_mismatch", m.first_mismatch, f[19]);
    free(n_data);
    free(b_data);
}

static void
every_case_is_as_numpy_says(void **state)
{
    FILE *file = fopen(MSP_TEST_DATA "/metrics/cases.txt", "r");
    static char line[1 << 16];
    int cases = 0;

    (void)state;
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        check_case(line);
        cases++;
    }
    fclose(file);
    assert_in_range(cases, 200, 1000);
}

static void
so_it_is_without_special_instructions(void **state)
{
    msp_cpu_limit(MSP_CPU_SCALAR);
    every_case_is_as_numpy_says(state);
    msp_cpu_limit(MSP_CPU_LEVELS);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_case_is_as_numpy_says),
        TEST(so_it_is_without_special_instructions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
