/* test_cpu.c - promises of core/cpu.h. */
#include "unit.h"
#include <sched.h>
#include <sys/wait.h>
#include "core/cpu.h"

static void
every_level_has_its_name(void **state)
{
    (void)state;
    assert_string_equal(msp_cpu_level_name(MSP_CPU_SCALAR), "scalar");
    assert_string_equal(msp_cpu_level_name(MSP_CPU_NEON), "neon");
    assert_string_equal(msp_cpu_level_name(MSP_CPU_AVX2), "avx2");
    assert_string_equal(msp_cpu_level_name(MSP_CPU_AVX512), "avx512");
    assert_string_equal(msp_cpu_level_name(MSP_CPU_LEVELS), "any");
}

static void
scalar_is_everywhere_and_arm_is_not_intel(void **state)
{
    (void)state;
    assert_true(msp_cpu_has(MSP_CPU_SCALAR));
#if defined(__aarch64__)
    assert_true(msp_cpu_has(MSP_CPU_NEON));
    assert_false(msp_cpu_has(MSP_CPU_AVX2));
    assert_false(msp_cpu_has(MSP_CPU_AVX512));
#else
    assert_false(msp_cpu_has(MSP_CPU_NEON));
    assert_true(msp_cpu_has(MSP_CPU_AVX2) || !msp_cpu_has(MSP_CPU_AVX512));
#endif
}

static void
a_limit_is_kept_to(void **state)
{
    (void)state;
    for (int l = MSP_CPU_SCALAR; l <= MSP_CPU_LEVELS; l++) {
        msp_cpu_level best;

        msp_cpu_limit((msp_cpu_level)l);
        best = msp_cpu_best();
        assert_true((int)best <= l);
        assert_true(msp_cpu_has(best));
        if (l < MSP_CPU_LEVELS && msp_cpu_has((msp_cpu_level)l))
            assert_int_equal(best, l);
    }
    msp_cpu_limit(MSP_CPU_SCALAR);
    assert_false(msp_cpu_has_clmul());
    msp_cpu_limit(MSP_CPU_LEVELS);
}

/* The variable is read once: in a child, while the parent has not asked for it yet. NULL: not set. */
static int
best_in_child(const char *value)
{
    pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        if (value == NULL)
            unsetenv("MSPROBE_CPU");
        else
            setenv("MSPROBE_CPU", value, 1);
        _exit((int)msp_cpu_best());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Must be the first test. */
static void
the_environment_sets_the_limit(void **state)
{
    (void)state;
    assert_int_equal(best_in_child("scalar"), MSP_CPU_SCALAR);
    assert_int_equal(best_in_child("nonsense"), best_in_child(NULL));
    if (msp_cpu_has(MSP_CPU_AVX2))
        assert_int_equal(best_in_child("avx2"), MSP_CPU_AVX2);
    if (msp_cpu_has(MSP_CPU_NEON))
        assert_int_equal(best_in_child("neon"), MSP_CPU_NEON);
}

static void
processors_are_those_this_process_may_use(void **state)
{
    cpu_set_t old, one;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(old), &old), 0);
    assert_int_equal(msp_cpu_count(), CPU_COUNT(&old));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &old))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(msp_cpu_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(old), &old), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_environment_sets_the_limit),
        TEST(every_level_has_its_name),
        TEST(scalar_is_everywhere_and_arm_is_not_intel),
        TEST(a_limit_is_kept_to),
        TEST(processors_are_those_this_process_may_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
