/*
 * log.h - leveled messages of the library, handed to whoever wants them.
 *
 * The library prints nothing by itself: messages go to the sink that the command or the extension sets; without one
 * they are dropped. The sink may be called from any thread, one call at a time.
 */
#ifndef MSP_CORE_LOG_H
#define MSP_CORE_LOG_H

#include "msprobe/log.h"

#define msp_debug(...)   msp_log(MSP_LOG_DEBUG, __VA_ARGS__)
#define msp_info(...)    msp_log(MSP_LOG_INFO, __VA_ARGS__)
#define msp_warning(...) msp_log(MSP_LOG_WARNING, __VA_ARGS__)

#endif
