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

/* A program of its own, because the variable is read once. */
static int
best_in_child(const char *value)
{
    char self[512];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    pid_t child;
    int status;

    assert_true(n > 0);
    self[n] = '\0';
    child = fork();
    if (child == 0) {
        setenv("MSPROBE_CPU", value, 1);
        execl(self, self, "best", (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void
the_environment_sets_the_limit(void **state)
{
    (void)state;
    assert_int_equal(best_in_child("scalar"), MSP_CPU_SCALAR);
    assert_int_equal(best_in_child("nonsense"), msp_cpu_best());
    if (msp_cpu_has(MSP_CPU_AVX2))
        assert_int_equal(best_in_child("avx2"), MSP_CPU_AVX2);
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
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(every_level_has_its_name),       TEST(scalar_is_everywhere_and_arm_is_not_intel), TEST(a_limit_is_kept_to),
        TEST(the_environment_sets_the_limit), TEST(processors_are_those_this_process_may_use),
    };

    if (argc > 1 && strcmp(argv[1], "best") == 0)
        return (int)msp_cpu_best();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
