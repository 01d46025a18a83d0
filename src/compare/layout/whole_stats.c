/* whole_stats.c - what the parts' statistics and checksums say of the whole: see whole.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>
#include "compare/layout/whole_parts.h"

static const msp_val unknown = {.kind = VAL_TEXT, .len = 3, .as.p = "N/A"};

/* The numbers of one statistic over all parts that have elements. False: one of them is none. */
static bool
fold(double *out, int which, const msp_row *const *rows, const msp_whole_part *parts, const msp_whole_row *how)
{
    double sum = 0, most = 0, numel = 0, v;
    size_t seen = 0;

    for (size_t i = 0; i < how->n; i++) {
        if (parts[i].numel == 0)
            continue;
        if (parts[i].numel < 0 || !msp_val_number(&rows[i]->stats[which], &v))
            return false;
        v *= how->factor;
        if (which == MSP_STAT_MAX)
            most = seen == 0 || v > most || isnan(v) ? v : most;
        else if (which == MSP_STAT_MIN)
            most = seen == 0 || v < most || isnan(v) ? v : most;
        else if (which == MSP_STAT_NORM)
            sum += v * v;
        else
            sum += how->how == LAYOUT_CONCAT ? v * (double)parts[i].numel : v;
        numel += (double)parts[i].numel;
        seen++;
    }
    *out = which == MSP_STAT_MAX || which == MSP_STAT_MIN ? most
           : which == MSP_STAT_NORM                       ? sqrt(sum)
           : how->how == LAYOUT_CONCAT                    ? sum / numel * (double)how->sums
                                                          : sum;
    return seen > 0;
}

/* The parts are those of the whole, as they are. */
static bool
is_plain(const msp_whole_row *how)
{
    return how->how == LAYOUT_CONCAT && how->factor == 1 && how->sums == 1;
}

/* Do the parts lie behind each other in the whole's memory? So they do where each begins where those before it end, and
 * none has gaps. */
static bool
are_behind_each_other(const msp_whole_row *how, const msp_whole_part *parts, const int64_t *shape, int ndim)
{
    int64_t at = 0;

    for (size_t i = 0; i < how->n && is_plain(how); i++) {
        int64_t place = 0, behind = 1;

        for (int d = ndim - 1; d >= 0; behind *= shape[d--])
            place += parts[i].start[d] * behind;
        /* what lies from here to the next place has as many elements as the part: no gaps */
        if (parts[i].numel > 0 && place != at)
            return false;
        at += parts[i].numel;
    }
    return is_plain(how);
}

static bool
join_checksums(msp_val *out, msp_whole *w, const msp_row *const *rows, const msp_whole_part *parts, size_t n,
               int64_t element)
{
    uLong crc = 0;
    char text[16], *copy;

    for (size_t i = 0; i < n; i++) {
        const msp_val *v = &rows[i]->md5;
        char hex[9] = "", *end = hex;
        uLong part;

        if (v->kind != VAL_TEXT || v->len != 8 || parts[i].numel < 0 || element <= 0)
            return true;
        memcpy(hex, v->as.p, 8);
        part = strtoul(hex, &end, 16);
        if (*end != '\0')
            return true;
        crc = crc32_combine(crc, part, (z_off_t)(parts[i].numel * element));
    }
    copy = msp_arena_text(&w->arena, text, (size_t)snprintf(text, sizeof(text), "%08lx", (unsigned long)crc));
    if (copy == NULL)
        return false;
    *out = (msp_val){.kind = VAL_TEXT, .len = 8, .as.p = copy};
    return true;
}

bool
msp_whole_statistics(msp_whole *w, msp_rows *t, msp_row *r, const msp_whole_row *how, const msp_row *const *rows,
                     const int64_t *shape, int ndim)
{
    const msp_whole_part *parts = &w->parts[how->first];

    for (int i = 0; i < MSP_NSTATS; i++) {
        bool knows = (how->how == LAYOUT_CONCAT && how->sums == 1) || i == MSP_STAT_MEAN;
        double v;

        r->stats[i] = knows && fold(&v, i, rows, parts, how) ? (msp_val){.kind = VAL_FLOAT, .as.f = v} : unknown;
    }
    r->md5 = unknown;
    return !are_behind_each_other(how, parts, shape, ndim) ||
           join_checksums(&r->md5, w, rows, parts, how->n, (int64_t)msp_dtype_size(t->texts[r->dtype].dtype));
}
