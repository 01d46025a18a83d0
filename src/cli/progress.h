/*
 * progress.h - one line on a terminal that says how far the work is; nothing in a pipe or a file.
 */
#ifndef MSP_CLI_PROGRESS_H
#define MSP_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct msp_progress {
    FILE *stream;
    bool shown; /* the stream is a terminal and the user did not ask for quiet */
    bool dirty; /* a line is on the screen */
    double started, painted;
} msp_progress;

/* What is done of how much; a total of 0 is one that is not known. */
typedef struct msp_progress_state {
    const char *what; /* "rank0", or NULL */
    int64_t rows, total_rows;
    int64_t bytes, total_bytes;
} msp_progress_state;

void msp_progress_start(msp_progress *p, FILE *stream, bool quiet);

/* Paint the line when the last time is long enough ago. Cheap enough for every row. */
void msp_progress_update(msp_progress *p, const msp_progress_state *s);

/* Take the line off the screen: before any other text goes to the terminal, and at the end. */
void msp_progress_clear(msp_progress *p);

/* The line's text for a state after so many seconds, for tests: "rank0  12,000 of 48,000 rows  1.2 GB/s  0:09 left". */
void msp_progress_format(char *buf, size_t size, const msp_progress_state *s, double seconds);

/* "12,345,678". buf must hold 32 bytes. */
const char *msp_format_count(char *buf, int64_t n);

/* "1.2 GB", "345 MB", "17 B" (powers of 1000). buf must hold 32 bytes. */
const char *msp_format_bytes(char *buf, double bytes);

/* "0:07", "12:30", "1:02:03". buf must hold 32 bytes. */
const char *msp_format_seconds(char *buf, double seconds);

#endif
