/* shell.c - words as a shell wants them. */
#include <string.h>
#include "shell.h"

void
msp_shell_put(FILE *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (const char *p = word; *p != '\0'; p++) {
        if (*p == '\'')
            fputs("'\\''", out);
        else if ((unsigned char)*p < 0x20 || *p == 0x7f)
            fputc('?', out); /* a path with control characters is not worth a working command on the screen */
        else
            fputc(*p, out);
    }
    fputc('\'', out);
}
