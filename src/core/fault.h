/*
 * fault.h - mappings that may lose their file.
 *
 * An access to a mapping raises SIGBUS when somebody has truncated the file or its server fails, and the default action
 * would end the program that we are a guest of. While at least one mapping is watched a handler of SIGBUS is installed:
 * a fault inside a watched mapping puts memory of zeros there, so that the access is repeated and goes nowhere, and
 * notes where it was; who has finished asks. Any other fault is left to the handler that was there before. The
 * program's handler comes back when the last mapping is forgotten, unless somebody has installed another one meanwhile.
 *
 * All functions may be called from any thread.
 */
#ifndef MSP_CORE_FAULT_H
#define MSP_CORE_FAULT_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct msp_watch msp_watch;

typedef enum msp_watch_kind {
    MSP_WATCH_READ, /* what can still be read stays: zeros from the page of the fault on */
    MSP_WATCH_RING  /* the whole of it becomes writable memory of this process alone */
} msp_watch_kind;

/*
 * Watch a mapping. *lost (may be NULL) is set by the handler and must live until msp_watch_end(). NULL: there is no
 * memory.
 */
msp_watch *msp_watch_begin(void *addr, size_t size, msp_watch_kind kind, _Atomic bool *lost);

/* The lowest offset from which on zeros stand in place of the file; SIZE_MAX: the mapping is whole. w may be NULL. */
size_t msp_watch_lost_from(const msp_watch *w);

/* The mapping is about to go. Accepts NULL. */
void msp_watch_end(msp_watch *w);

/*
 * The signals that threads of ours leave to the program's own: all but those that an instruction raises itself. A
 * thread that blocks SIGBUS ends the process with a fault that the handler would have met.
 */
void msp_signals_of_others(sigset_t *out);

#endif
