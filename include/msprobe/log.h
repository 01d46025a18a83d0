/* log.h - leveled messages of the library, handed to whoever wants them. */
#ifndef MSPROBE_LOG_H
#define MSPROBE_LOG_H

#include <stdbool.h>
#include "msprobe/error.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum msp_log_level {
    MSP_LOG_DEBUG = 0,
    MSP_LOG_INFO,
    MSP_LOG_WARNING,
    MSP_LOG_ERROR,
    MSP_LOG_NONE
} msp_log_level;

/* text is one line without its end; control characters in it have been replaced by '_'. */
typedef void msp_log_sink(msp_log_level level, const char *text, void *payload);

/*
 * Send messages of at least this level to sink; NULL drops them, which is how a process starts. The library prints
 * nothing by itself. The sink may be called from any thread, one call at a time, and must not log.
 */
MSP_API void msp_log_set_sink(msp_log_level least, msp_log_sink *sink, void *payload);

/* True when a message of this level would reach somebody: for those whose text costs something to put together. */
MSP_API bool msp_log_wanted(msp_log_level level);

/* Write a message. Cheap when its level is not wanted. */
MSP_API void msp_log(msp_log_level level, const char *fmt, ...) MSP_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
