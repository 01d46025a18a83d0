/* shell.h - words as a shell wants them. */
#ifndef MSP_CLI_SHELL_H
#define MSP_CLI_SHELL_H

#include <stdio.h>

/* Print word so that a POSIX shell reads it back as one word; quotes only where they are needed. */
void msp_shell_put(FILE *out, const char *word);

#endif
