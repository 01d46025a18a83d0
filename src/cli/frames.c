/*
 * frames.c - the lines of code that tell most about a call. The innermost one outside torch says what is computed, also
 * where it stands in an installed library (transformers' modeling_llama.py:231); the innermost of the user's own says
 * where that is called from, but may be the one line that all calls of a training share.
 */
#include <string.h>
#include <unistd.h>
#include "summary_parts.h"

static bool
is_installed(const char *frame)
{
    return msp_frame_is_installed(frame, strlen(frame));
}

static bool
is_machinery(const char *frame)
{
    return msp_frame_is_machinery(frame, strlen(frame));
}

const char *
msp_summary_code_frame(char *const *stack, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_machinery(stack[i]))
            return stack[i];
    return n > 0 ? stack[0] : NULL;
}

const char *
msp_summary_user_frame(char *const *stack, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_machinery(stack[i]) && !is_installed(stack[i]))
            return stack[i];
    return msp_summary_code_frame(stack, n);
}

/* A file below the current folder, as seen from there: dumps hold whole paths, people know their own. */
static const char *
seen_from_here(const char *file)
{
    char here[4096];
    size_t n;

    if (getcwd(here, sizeof(here)) == NULL)
        return file;
    n = strlen(here);
    return n > 1 && strncmp(file, here, n) == 0 && file[n] == '/' ? file + n + 1 : file;
}

const char *
msp_frame_place(char *text, size_t size, const char *frame, bool from_here)
{
    const char *file = strncmp(frame, "File ", 5) == 0 ? frame + 5 : NULL;
    const char *line = file != NULL ? strstr(file, ", line ") : NULL;
    const char *in = line != NULL ? strstr(line, ", in ") : NULL;
    const char *code = strchr(frame, '\n');
    size_t head = code != NULL ? (size_t)(code - frame) : strlen(frame);

    while (head > 0 && (frame[head - 1] == ' ' || frame[head - 1] == ','))
        head--;
    file = file != NULL && from_here ? seen_from_here(file) : file;
    if (in != NULL && in + 5 <= frame + head && file <= line)
        snprintf(text, size, "%.*s:%.*s in %.*s", (int)(line - file), file, (int)(in - line - 7), line + 7,
                 (int)(frame + head - in - 5), in + 5);
    else
        snprintf(text, size, "%.*s", (int)head, frame);
    return code != NULL ? code + strspn(code, " \n") : NULL;
}

static void
put_frame(FILE *out, const char *title, const char *frame)
{
    char text[1024];
    const char *code = msp_frame_place(text, sizeof(text), frame, true);

    print_label(out, title);
    put_safe(out, MSP_STYLE_PLAIN, text);
    fputc('\n', out);
    if (code != NULL) {
        print_label(out, "");
        put_safe(out, MSP_STYLE_DIM, code);
        fputc('\n', out);
    }
}

void
msp_summary_frames(FILE *out, char *const *stack, size_t n)
{
    const char *code = msp_summary_code_frame(stack, n), *own = msp_summary_user_frame(stack, n);

    if (code != NULL)
        put_frame(out, "Called at", code);
    if (own != NULL && own != code)
        put_frame(out, "Your line", own);
}
