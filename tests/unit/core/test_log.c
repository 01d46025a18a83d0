/* test_log.c - promises of msprobe/log.h. */
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include "core/log.h"

typedef struct seen {
    int count;
    int inside;
    bool overlapped;
    msp_log_level level;
    char text[4096];
} seen;

static void
remember(msp_log_level level, const char *text, void *payload)
{
    seen *s = payload;

    s->overlapped |= s->inside++ != 0;
    s->count++;
    s->level = level;
    snprintf(s->text, sizeof(s->text), "%s", text);
    s->inside--;
}

static void
without_a_sink_messages_are_dropped(void **state)
{
    seen s = {0};

    (void)state;
    msp_log(MSP_LOG_ERROR, "nobody");
    msp_log_set_sink(MSP_LOG_DEBUG, remember, &s);
    msp_log_set_sink(MSP_LOG_DEBUG, NULL, NULL);
    msp_log(MSP_LOG_ERROR, "nobody");
    assert_int_equal(s.count, 0);
}

static void
only_wanted_levels_arrive(void **state)
{
    seen s = {0};

    (void)state;
    msp_log_set_sink(MSP_LOG_WARNING, remember, &s);
    msp_debug("d");
    msp_info("i");
    assert_int_equal(s.count, 0);
    msp_warning("w %d", 1);
    assert_int_equal(s.count, 1);
    assert_int_equal(s.level, MSP_LOG_WARNING);
    assert_string_equal(s.text, "w 1");
    msp_log_set_sink(MSP_LOG_NONE, remember, &s);
    msp_log(MSP_LOG_ERROR, "e");
    assert_int_equal(s.count, 1);
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
}

static void
a_message_is_one_line_of_printable_text(void **state)
{
    char longest[5000];
    seen s = {0};

    (void)state;
    msp_log_set_sink(MSP_LOG_DEBUG, remember, &s);
    msp_info("a\nb\rc\td\x7F\x1B[31m\xC3\xA4");
    assert_string_equal(s.text, "a_b_c_d__[31m\xC3\xA4");
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    msp_info("%s", longest);
    assert_int_equal(strspn(s.text, "x"), strlen(s.text));
    assert_true(strlen(s.text) > 2000);
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
}

static void
a_long_message_is_cut_between_characters(void **state)
{
    seen s = {0};

    (void)state;
    msp_log_set_sink(MSP_LOG_DEBUG, remember, &s);
    for (size_t pad = 0; pad < 3; pad++) {
        char text[4000];
        size_t n;

        memset(text, 'x', pad);
        for (n = pad; n + 3 < sizeof(text); n += 3)
            memcpy(text + n, "\xE4\xBD\xA0", 3);
        text[n] = '\0';
        msp_info("%s", text);
        assert_int_equal((strlen(s.text) - pad) % 3, 0);
    }
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
}

static void *
log_many(void *unused)
{
    (void)unused;
    for (int i = 0; i < 1000; i++)
        msp_info("message %d", i);
    return NULL;
}

static void
the_sink_is_called_by_one_thread_at_a_time(void **state)
{
    pthread_t threads[4];
    seen s = {0};

    (void)state;
    msp_log_set_sink(MSP_LOG_INFO, remember, &s);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_many, NULL), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
    assert_int_equal(s.count, 4000);
    assert_false(s.overlapped);
}

static atomic_bool in_sink, let_go;

static void
wait_inside(msp_log_level level, const char *text, void *payload)
{
    (void)level;
    (void)text;
    (void)payload;
    atomic_store(&in_sink, true);
    while (!atomic_load(&let_go))
        usleep(1000);
}

static void *
log_once(void *unused)
{
    (void)unused;
    msp_info("slow");
    return NULL;
}

/* A data loader's child inherits the lock as another thread of the parent left it. */
static void
a_child_can_log_though_the_parent_was_logging(void **state)
{
    pthread_t thread;
    seen s = {0};
    pid_t child;
    int status;

    (void)state;
    msp_log_set_sink(MSP_LOG_INFO, wait_inside, NULL);
    assert_int_equal(pthread_create(&thread, NULL, log_once, NULL), 0);
    while (!atomic_load(&in_sink))
        usleep(1000);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* a deadlock ends here */
        msp_log_set_sink(MSP_LOG_INFO, remember, &s);
        msp_info("child");
        _exit(s.count == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    atomic_store(&let_go, true);
    pthread_join(thread, NULL);
    msp_log_set_sink(MSP_LOG_NONE, NULL, NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(without_a_sink_messages_are_dropped),        TEST(only_wanted_levels_arrive),
        TEST(a_message_is_one_line_of_printable_text),    TEST(a_long_message_is_cut_between_characters),
        TEST(the_sink_is_called_by_one_thread_at_a_time), TEST(a_child_can_log_though_the_parent_was_logging),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
