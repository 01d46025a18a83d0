/* log.c - see msprobe/log.h. */
#include "core/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include "core/locale.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int wanted = MSP_LOG_NONE;
static msp_log_sink *current;
static void *current_payload;

/* A data loader's child must not wait for a thread that only its parent has. */
static void
after_fork_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

static void
register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

void
msp_log_set_sink(msp_log_level least, msp_log_sink *sink, void *payload)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_fork_handler);
    pthread_mutex_lock(&lock);
    current = sink;
    current_payload = payload;
    atomic_store(&wanted, sink == NULL ? MSP_LOG_NONE : (int)least);
    pthread_mutex_unlock(&lock);
}

/* Drop half a character at the end, where vsnprintf() cut a long text. */
static void
drop_cut_character(char *text, size_t len)
{
    size_t i = len;

    while (i > 0 && ((unsigned char)text[i - 1] & 0xC0) == 0x80)
        i--;
    if (i > 0 && (unsigned char)text[i - 1] >= 0xC0)
        text[i - 1] = '\0';
}

bool
msp_log_wanted(msp_log_level level)
{
    return (int)level >= atomic_load_explicit(&wanted, memory_order_relaxed);
}

void
msp_log(msp_log_level level, const char *fmt, ...)
{
    char text[2048];
    va_list args;
    int n;

    if (!msp_log_wanted(level))
        return;
    va_start(args, fmt);
    n = msp_vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof(text))
        drop_cut_character(text, sizeof(text) - 1);
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '_';
    pthread_mutex_lock(&lock);
    if (current != NULL)
        current(level, text, current_payload);
    pthread_mutex_unlock(&lock);
}
