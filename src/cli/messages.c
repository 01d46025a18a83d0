/* messages.c - everything that goes to stderr. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "messages.h"
#include "terminal.h"
#include "msprobe/log.h"

/* Messages come from any thread, and share the terminal with the progress line. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static msp_progress *shared;
static bool level_chosen;

static void
write_line(msp_style style, const char *label, const char *text)
{
    char safe[1400];

    pthread_mutex_lock(&lock);
    if (shared != NULL)
        msp_progress_clear(shared);
    msp_term_put(stderr, style, "%s", label);
    fprintf(stderr, "%s\n", msp_text_safe(safe, sizeof(safe), text));
    pthread_mutex_unlock(&lock);
}

static void
on_message(msp_log_level level, const char *text, void *payload)
{
    static const struct {
        msp_style style;
        const char *label;
    } looks[] = {{MSP_STYLE_DIM, "debug: "},
                 {MSP_STYLE_DIM, ""},
                 {MSP_STYLE_YELLOW, "warning: "},
                 {MSP_STYLE_RED, "error: "}};

    (void)payload;
    if (level <= MSP_LOG_ERROR)
        write_line(looks[level].style, looks[level].label, text);
}

void
msp_messages_start(bool quiet, bool verbose)
{
    const char *env = getenv("MSPROBE_LOG_LEVEL");
    msp_log_level least = MSP_LOG_WARNING;

    level_chosen = true;
    if (verbose)
        least = MSP_LOG_DEBUG;
    else if (quiet)
        least = MSP_LOG_WARNING;
    else if (env != NULL && env[0] >= '0' && env[0] <= '4' && env[1] == '\0')
        least = (msp_log_level)(env[0] - '0');
    else
        level_chosen = false;
    msp_log_set_sink(least, on_message, NULL);
    if (env != NULL && env[0] != '\0' && !level_chosen)
        write_line(MSP_STYLE_YELLOW, "warning: ", "MSPROBE_LOG_LEVEL is none of 0, 1, 2, 3, 4 and is ignored");
}

void
msp_messages_show_info(void)
{
    if (!level_chosen)
        msp_log_set_sink(MSP_LOG_INFO, on_message, NULL);
}

void
msp_messages_share(msp_progress *progress)
{
    pthread_mutex_lock(&lock);
    if (shared != NULL)
        msp_progress_clear(shared);
    shared = progress;
    pthread_mutex_unlock(&lock);
}

void
msp_messages_progress(const msp_progress_state *s)
{
    pthread_mutex_lock(&lock);
    if (shared != NULL)
        msp_progress_update(shared, s);
    pthread_mutex_unlock(&lock);
}

msp_exit_code
msp_cli_fail(msp_status status, const msp_error *err)
{
    write_line(MSP_STYLE_RED,
               "error: ", err != NULL && err->message[0] != '\0' ? err->message : msp_status_text(status));
    return MSP_EXIT_FAILED;
}

msp_exit_code
msp_cli_usage(const msp_command *command, const msp_error *err)
{
    write_line(MSP_STYLE_RED, "error: ", err->message);
    fprintf(stderr, "try: msprobe help%s%s\n", command != NULL ? " " : "", command != NULL ? command->name : "");
    return MSP_EXIT_USAGE;
}
