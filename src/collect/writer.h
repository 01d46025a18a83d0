/* writer.h - the loop that empties a ring into dump files, in a process, a thread, or a reader that recovers. */
#ifndef MSP_COLLECT_WRITER_H
#define MSP_COLLECT_WRITER_H

#include "collect/ring.h"

/*
 * Serve the ring until its producer has closed it or is gone, and everything is published. On failure shared->failed
 * and error tell the producer, and the files are valid as they were published last. records (may be NULL) is how many
 * were added. Files that an earlier writer of this ring has made are continued.
 */
MSP_CHECK msp_status msp_writer_serve(msp_ring *r, int64_t *records, msp_error *err);

#endif
