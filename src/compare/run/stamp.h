/* stamp.h - the second in the names of results, which no other run may use. */
#ifndef MSP_COMPARE_STAMP_H
#define MSP_COMPARE_STAMP_H

#include <stdbool.h>
#include <sys/types.h>
#include "msprobe/error.h"

/* One folder that results are written to. */
typedef struct msp_stamp_place {
    char *claim; /* a hidden file in it, there and locked as long as the stamp is in use; NULL: none yet */
    int fd;      /* the file, with the lock */
    char *made;  /* the folder, when it was made for this stamp */
    dev_t dev;   /* which folder it is, whatever it is called */
    ino_t ino;
} msp_stamp_place;

/* Zeroed is empty. */
typedef struct msp_stamp {
    char text[16]; /* "20260131235959" */
    msp_stamp_place *places;
    size_t n;
} msp_stamp;

/* Does a result with this stamp exist? */
typedef bool msp_stamp_taken(const char *text, void *payload);

/* MSP_E_INVALID unless given is NULL or 14 digits. */
MSP_CHECK msp_status msp_stamp_check(const char *given, msp_error *err);

/*
 * Take the second given (NULL: now, local time), or the first after it that no result has and no run that
 * writes into one of the n dirs at this moment has taken: what two runs write never gets the same name, and nothing is
 * written over. The dirs may be one folder by several names, and are made when they are not there. What runs that were
 * killed have left of their claims is taken away.
 *
 * MSP_E_INVALID (given), MSP_E_IO (a dir cannot be written; the message says what to do), MSP_E_LIMIT, MSP_E_NOMEM. The
 * stamp is released in any case.
 */
MSP_CHECK msp_status msp_stamp_claim(msp_stamp *out, const char *const *dirs, size_t n, const char *given,
                                     msp_stamp_taken *taken, void *payload, msp_error *err);

/* Let others have it, and take away the folders that were made for it if nothing was written there. */
void msp_stamp_release(msp_stamp *s);

/* Say at the end of the message of a result that could not be made what can be done about it. Returns st. */
msp_status msp_stamp_advise(msp_error *err, msp_status st);

#endif
