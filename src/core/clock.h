/* clock.h - how long something takes. */
#ifndef MSP_CORE_CLOCK_H
#define MSP_CORE_CLOCK_H

#include <time.h>

/* Seconds since some moment, by a clock that nobody sets. */
static inline double
msp_clock_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
