/* messages.h - the library's log and our own errors on stderr, kept apart from the progress line. */
#ifndef MSP_CLI_MESSAGES_H
#define MSP_CLI_MESSAGES_H

#include <stdbool.h>
#include "cli.h"
#include "progress.h"

/*
 * Send the library's messages to stderr. What is shown: warnings and errors; with verbose everything; MSPROBE_LOG_LEVEL
 * (0 debug, 1 info, 2 warning, 3 error, 4 nothing) decides where neither quiet nor verbose was given.
 */
void msp_messages_start(bool quiet, bool verbose);

/* Show info lines too from now on, unless the user chose a level: a compare file asked for a line per row. */
void msp_messages_show_info(void);

/* Take the progress line away while a message is written. NULL: there is none any more. */
void msp_messages_share(msp_progress *progress);

/* Paint progress from any thread. */
void msp_messages_progress(const msp_progress_state *s);

#endif
