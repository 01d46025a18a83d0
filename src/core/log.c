/* log.c - see msprobe/log.h. */
#include "core/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int wanted = MSP_LOG_NONE;
static msp_log_sink *current;
static void *current_payload;

void
msp_log_set_sink(msp_log_level least, msp_log_sink *sink, void *payload)
{
    pthread_mutex_lock(&lock);
    current = sink;
    current_payload = payload;
    atomic_store(&wanted, sink == NULL ? MSP_LOG_NONE : (int)least);
    pthread_mutex_unlock(&lock);
}

void
msp_log(msp_log_level level, const char *fmt, ...)
{
    char text[2048];
    va_list args;

    if ((int)level < atomic_load_explicit(&wanted, memory_order_relaxed))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '_';
    pthread_mutex_lock(&lock);
    if (current != NULL)
        current(level, text, current_payload);
    pthread_mutex_unlock(&lock);
}
