/*
 * publish.h - a JSON file that grows by members and is valid at every moment, for every reader, whoever is killed.
 *
 * The file is head + members + tail, where tail closes what head opens. The first members make it: all three are
 * written to a hidden name and renamed, and a file that gets no others, as that of a short step, is done. Later ones
 * are written into its twin, a hidden file beside it that lags by one batch: first what the published file already has,
 * then the new members, then the tail. The two names are then exchanged in one step (renameat2 with RENAME_EXCHANGE),
 * and the old file becomes the next twin, unless somebody still reads it: then it is left to him, and the twin is made
 * anew. Every byte is written twice, and never by the training process; rewriting the file at each flush, as the
 * original does, costs the square of its size. On file systems without that call (NFS) members and tail are written
 * over the old tail with one pwrite(2).
 */
#ifndef MSP_COLLECT_PUBLISH_H
#define MSP_COLLECT_PUBLISH_H

#include <stdbool.h>
#include <stdint.h>
#include "core/str.h"
#include "msprobe/error.h"

typedef struct msp_publish {
    char *path, *twin;      /* the two names, in one block with head's text behind them */
    int fd, twin_fd;        /* -1: none; without fd the file is still to be made */
    uint64_t len, twin_len; /* how many bytes of head and members each of the two has */
    uint64_t end, twin_end; /* how many bytes each has in all */
    size_t prepared;        /* how many bytes of the next text the twin has behind twin_len */
    msp_str head, tail;     /* tail: a literal */
    bool no_exchange;       /* the file system cannot exchange names */
    bool was_shown;         /* the twin was the file, and nothing was written to it since */
    bool any;               /* there is a member */
} msp_publish;

#define MSP_PUBLISH_NONE ((msp_publish){.fd = -1, .twin_fd = -1})

/* A file that the next append or preview, be it empty, makes at path, replacing what is there in one step. */
MSP_CHECK msp_status msp_publish_create(msp_publish *out, const char *path, msp_str head, msp_str tail, msp_error *err);

/*
 * Go on with a file that an earlier writer left: it must end with tail. any is found from the byte before the tail ('{'
 * : none).
 */
MSP_CHECK msp_status msp_publish_reopen(msp_publish *out, const char *path, msp_str tail, msp_error *err);

/*
 * Append text, which begins with a comma when p->any; the file is valid before, during and after. A file that could not
 * be made, for want of space, can be made with a shorter text afterwards.
 */
MSP_CHECK msp_status msp_publish_append(msp_publish *p, msp_str text, msp_error *err);

/*
 * Write the first part of what the next append will be given, so that it has less to do; with an empty one the file
 * that it writes to is made and no more. Text that was prepared before is the beginning of this one.
 */
void msp_publish_prepare(msp_publish *p, msp_str text);

/*
 * Show text, which begins as in msp_publish_append(), without keeping it: the next append or preview takes its place.
 * In the file it begins with a tab, which stands nowhere else in it, so that a later writer finds what was kept. Does
 * nothing on a file system without that call, where text can only be written over by longer one.
 */
MSP_CHECK msp_status msp_publish_preview(msp_publish *p, msp_str text, msp_error *err);

/* Close and remove the twin. Accepts MSP_PUBLISH_NONE. */
void msp_publish_close(msp_publish *p);

#endif
