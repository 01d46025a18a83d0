/* ahead.c - see ahead.h. */
#include "compare/judge/ahead.h"

#include <limits.h>
#include "core/file.h"

enum {
    AROUND = 2048,             /* bytes of a .pt file that are not data: 900, and a long name ten times */
    SMALL = 8192,              /* bytes of data: reading one by one costs little more from here on */
    ALIGNED = 64,              /* as the formats align data in their files */
    MOST = MSP_SMALL_FILES / 2 /* rows */
};

/* How much room the file of a row takes; 0: it is not to be read ahead. */
static size_t
room_for(const msp_measurer *m, int side, const msp_rows *t, const msp_row *r)
{
    int64_t bytes = msp_row_bytes(t, r);

    if (r->file == NULL || r->whole != 0 || r->file_len > NAME_MAX || memchr(r->file, '/', r->file_len) != NULL ||
        m->fds[side] < 0 || m->open_to_all[side] || bytes < 0 || bytes > SMALL)
        return 0;
    return ((size_t)bytes + AROUND + ALIGNED - 1) / ALIGNED * ALIGNED;
}

size_t
msp_ahead_read(char room[MSP_AHEAD_ROOM], const msp_measurer *m, const msp_rows *const sides[2], msp_judged *rows,
               size_t n)
{
    msp_small_file files[MSP_SMALL_FILES];
    msp_str *to[MSP_SMALL_FILES];
    size_t nfiles = 0, used = 0, i;

    for (i = 0; i < n && i < MOST; i++) {
        const msp_row *pair[2] = {rows[i].n, rows[i].b};
        size_t need[2] = {0, 0};

        for (int k = 0; k < 2 && rows[i].b != NULL; k++)
            need[k] = room_for(m, k, sides[k], pair[k]);
        if (used + need[0] + need[1] > MSP_AHEAD_ROOM)
            break;
        for (int k = 0; k < 2; k++)
            if (need[k] > 0) {
                files[nfiles] = (msp_small_file){m->fds[k], room + used, need[k], 0};
                memcpy(room + used, pair[k]->file, pair[k]->file_len);
                room[used + pair[k]->file_len] = '\0';
                to[nfiles++] = &rows[i].ahead[k];
                used += need[k];
            }
    }
    msp_file_read_small(files, nfiles);
    for (size_t f = 0; f < nfiles; f++)
        *to[f] = (msp_str){files[f].room, files[f].size};
    return i;
}
