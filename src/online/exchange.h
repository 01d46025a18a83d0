/*
 * exchange.h - the shared folder, where sender and checker cannot or will not connect.
 *
 * Every file appears whole: it is written beside its place and renamed. <job> is 32 hex digits, numbers are decimal.
 *     checker.alive              the checker: a frame ALIVE with a beat that grows, rewritten every two seconds
 *     <job>-<number>.call        a sender: a call (call.h)
 *     <job>-<number>.claimed     the same, once the checker has renamed it
 *     <job>-<number>.verdict     the checker: a frame VERDICT or REFUSED; the claimed file is removed behind it
 *     <job>-<step>.step          a sender: a frame STEP
 *     <job>.end                  a sender: a frame END
 * Who has read a file removes it. A sender has at most MSP_EXCHANGE_CALLS calls there.
 */
#ifndef MSP_ONLINE_EXCHANGE_H
#define MSP_ONLINE_EXCHANGE_H

#include "online/call.h"
#include "online/wire.h"

enum {
    MSP_EXCHANGE_CALLS = 64,
    MSP_EXCHANGE_BEAT_MS = 2000,
    MSP_EXCHANGE_SILENT_MS = 15000 /* without a beat the checker is gone */
};

typedef struct msp_exchange_name {
    char job[33];
    uint64_t number;
    enum { MSP_FILE_OTHER = 0, MSP_FILE_CALL, MSP_FILE_CLAIMED, MSP_FILE_VERDICT, MSP_FILE_STEP, MSP_FILE_END } kind;
} msp_exchange_name;

/* What a file's name says; kind MSP_FILE_OTHER: nothing to us. */
msp_exchange_name msp_exchange_parse(const char *name);

void msp_exchange_job_text(char out[33], const unsigned char job[MSP_WIRE_JOB]);

/* "<folder>/<job>-<number>.<ending>"; number UINT64_MAX: without. MSP_E_INVALID: too long. */
MSP_CHECK msp_status msp_exchange_path(char *out, size_t size, const char *folder, const char *job, uint64_t number,
                                       const char *ending, msp_error *err);

MSP_CHECK msp_status msp_exchange_put_call(const char *path, const msp_call_parts *call, msp_error *err);
MSP_CHECK msp_status msp_exchange_put_frame(const char *path, const msp_buf *frame, msp_error *err);

/* The one frame in a file: *text is given back with msp_free(), and out points into it. */
MSP_CHECK msp_status msp_exchange_get_frame(msp_wire_frame *out, char **text, const char *path, msp_error *err);

#endif
