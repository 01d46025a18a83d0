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
    double started, painted, updated;
    double reading, working; /* seconds spent in either */
} msp_progress;

/* What is done of how much; a total of 0 is one that is not known. */
typedef struct msp_progress_state {
    const char *what; /* "rank0", or NULL */
    bool is_reading;  /* JSON at this moment; else rows and their files */
    int64_t rows, total_rows;
    int64_t bytes, total_bytes; /* of all files */
    int64_t json, total_json;   /* of JSON files, which are contained in bytes */
    int64_t known_json;         /* those whose rows and files are contained in the totals */
    double row_cost;            /* of all rows, times that of reading the JSON: a guess until some are done; 0: 1 */
} msp_progress_state;

void msp_progress_start(msp_progress *p, FILE *stream, bool quiet);

/* Paint the line when the last time is long enough ago. Cheap enough for every row. */
void msp_progress_update(msp_progress *p, const msp_progress_state *s);

/* Take the line off the screen: before any other text goes to the terminal, and at the end. */
void msp_progress_clear(msp_progress *p);

/*
 * Seconds left, from those spent so far with reading JSON and with rows; negative when nobody can know yet. Both kinds
 * of work go on at the speed they had. Rows of files that are not read yet are as many as the JSON read makes expect.
 */
double msp_progress_left(const msp_progress_state *s, double reading, double working);

/* The line's text after so many seconds: "rank0  12,000 of 48,000 rows  1.2 GB/s  0:09 left". A left below 0 is left
 * out. */
void msp_progress_format(char *buf, size_t size, const msp_progress_state *s, double seconds, double left);

/* "12,345,678". buf must hold 32 bytes. */
const char *msp_format_count(char *buf, int64_t n);

/* "1.2 GB", "345 MB", "17 B" (powers of 1000). buf must hold 32 bytes. */
const char *msp_format_bytes(char *buf, double bytes);

/* "0:07", "12:30", "1:02:03". buf must hold 32 bytes. */
const char *msp_format_seconds(char *buf, double seconds);

#endif
