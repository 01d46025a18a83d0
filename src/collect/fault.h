/*
 * fault.h - mappings that may lose their file.
 *
 * A store into a shared mapping raises SIGBUS when somebody has truncated the file or its server fails, and the default
 * action would end the program that we are a guest of. While at least one mapping is watched a handler of SIGBUS is
 * installed: a fault inside a watched mapping replaces the whole of it by anonymous memory and sets the owner's flag,
 * so that the store is repeated and goes nowhere. Any other fault is left to the handler that was there before. The
 * program's handler comes back when the last mapping is forgotten, unless somebody has installed another one meanwhile.
 */
#ifndef MSP_COLLECT_FAULT_H
#define MSP_COLLECT_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Watch a mapping; *lost is set by the handler and must live until msp_fault_forget(). False: there are too many. */
bool msp_fault_watch(void *addr, size_t size, _Atomic bool *lost);

/* The mapping is about to go. Accepts one that is not watched. */
void msp_fault_forget(void *addr);

#endif
