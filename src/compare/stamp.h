/* stamp.h - the second in the names of results, which no other run may use. */
#ifndef MSP_COMPARE_STAMP_H
#define MSP_COMPARE_STAMP_H

#include <stdbool.h>
#include "msprobe/error.h"

/* Zeroed is empty. */
typedef struct msp_stamp {
    char text[16]; /* "20260131235959" */
    char *claim;   /* a hidden file in the folder, there as long as the stamp is in use */
    char *made;    /* the folder, when it was made for this stamp */
} msp_stamp;

/* Does a result with this stamp exist? */
typedef bool msp_stamp_taken(const char *text, void *payload);

/* MSP_E_INVALID unless given is NULL or 14 digits. */
MSP_CHECK msp_status msp_stamp_check(const char *given, msp_error *err);

/*
 * Take the second given (NULL: now, local time), or the first after it that no result has and no run that
 * writes into dir at this moment has taken: what two runs write never gets the same name, and nothing is written over.
 * dir is made when it is not there.
 *
 * MSP_E_INVALID (given), MSP_E_IO (dir cannot be written; the message says what to do), MSP_E_LIMIT, MSP_E_NOMEM. The
 * stamp is released in any case.
 */
MSP_CHECK msp_status msp_stamp_claim(msp_stamp *out, const char *dir, const char *given, msp_stamp_taken *taken,
                                     void *payload, msp_error *err);

/* Let others have it, and take away the folder that was made for it if nothing was written there. */
void msp_stamp_release(msp_stamp *s);

/* Say at the end of the message of a result that could not be made what can be done about it. Returns st. */
msp_status msp_stamp_advise(msp_error *err, msp_status st);

#endif
