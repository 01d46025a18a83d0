/* process.h - a process of ours beside the program's. */
#ifndef MSP_CORE_PROCESS_H
#define MSP_CORE_PROCESS_H

/*
 * Run "program word path" in a session of its own, without our files and signals. It has to detach itself: we wait
 * until what we started is over, and the program never sees a child of ours. Returns 0 or an errno.
 */
int msp_process_spawn(const char *program, const char *word, const char *path);

#endif
