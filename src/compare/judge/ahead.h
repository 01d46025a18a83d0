/*
 * ahead.h - the files of many small tensors, read in one go.
 *
 * What small tensors cost is mostly the kernel opening, reading and closing their files, which goes faster for many
 * than for one; and the code that compares them afterwards finds itself in the cache.
 */
#ifndef MSP_COMPARE_AHEAD_H
#define MSP_COMPARE_AHEAD_H

#include "compare/judge/measure.h"

enum { MSP_AHEAD_ROOM = 128 * 1024 };

/*
 * Read the files of the first of n rows into room, as many as it holds, and point rows[..].ahead at their bytes. Files
 * that are not small, or that somebody must look at before, are left to be opened when it is their turn. Returns for
 * how many rows, at least one, this was settled.
 */
size_t msp_ahead_read(char room[MSP_AHEAD_ROOM], const msp_measurer *m, const msp_rows *const sides[2],
                      msp_judged *rows, size_t n);

#endif
