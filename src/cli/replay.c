/* replay.c - see replay.h. Python writes to files that the library reads; what it says goes to a log, for the error. */
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "interpreter.h"

enum {
    NO_TORCH = 3, /* exit status of python -m msprobe.replay */
    LOOK_EVERY = 50 * 1000 * 1000
};

/* In the child: only what is safe between fork() and exec() of a process with threads. */
static void
become_python(const char *path, const char *const *words, const char *log)
{
    int in = open("/dev/null", O_RDONLY), out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody would read what it finds */
    if (in >= 0)
        dup2(in, STDIN_FILENO);
    if (out >= 0) {
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
    }
    execv(path, (char *const *)words);
    _exit(127);
}

/* The last line of the log that says something. */
static void
last_line(char out[256], const char *log)
{
    FILE *f = fopen(log, "re");
    char line[1024];

    out[0] = '\0';
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] != '\0')
            snprintf(out, 256, "%.255s", line);
    }
    if (f != NULL)
        fclose(f);
}

static msp_status
explain_failure(const char *path, int status, const char *log, msp_error *err)
{
    char said[256];

    last_line(said, log);
    if (WIFSIGNALED(status))
        return msp_error_set(err, MSP_E_IO, "%.512s was ended by signal %d", path, WTERMSIG(status));
    if (WEXITSTATUS(status) == 127)
        return msp_error_set(err, MSP_E_IO, "%.512s cannot be run", path);
    if (WEXITSTATUS(status) == NO_TORCH || strstr(said, "No module named") != NULL)
        return msp_error_set(err, MSP_E_NOT_FOUND,
                             "%.512s has no torch with msprobe (%s); set MSPROBE_PYTHON to the interpreter of the "
                             "environment that has both",
                             path, said);
    return msp_error_set(err, MSP_E_IO, "%.512s -m msprobe.replay failed: %s", path,
                         said[0] != '\0' ? said : "no word");
}

static msp_status
wait_for(pid_t pid, int *status, const msp_replay_job *job, msp_error *err)
{
    const struct timespec pause = {0, LOOK_EVERY};
    bool cancelled = false;
    pid_t done;

    while ((done = waitpid(pid, status, WNOHANG)) <= 0) {
        if (done < 0 && errno != EINTR)
            return msp_error_set_errno(err, MSP_E_IO, errno, "cannot wait for Python");
        if (!cancelled && job->is_cancelled != NULL && job->is_cancelled()) {
            cancelled = true;
            kill(pid, SIGTERM);
        }
        nanosleep(&pause, NULL);
    }
    return cancelled ? msp_error_set(err, MSP_E_CANCELLED, "cancelled") : MSP_OK;
}

msp_status
msp_replay_run(const msp_replay_request *r, void *payload, msp_error *err)
{
    const msp_replay_job *job = payload;
    char path[MSP_INTERPRETER_PATH], workers[16];
    const char *words[] = {path,     "-m",   "msprobe.replay", r->npu_path, r->bench_path,
                           r->calls, r->out, "--workers",      workers,     NULL};
    msp_status st = msp_interpreter_find(path, err);
    int status;
    pid_t pid;

    if (st != MSP_OK)
        return st;
    snprintf(workers, sizeof(workers), "%d", job->threads);
    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return msp_error_set_errno(err, MSP_E_IO, errno, "cannot start %s", path);
    if (pid == 0)
        become_python(path, words, r->log);
    st = wait_for(pid, &status, job, err);
    if (st == MSP_OK && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        st = explain_failure(path, status, r->log, err);
    return st;
}
